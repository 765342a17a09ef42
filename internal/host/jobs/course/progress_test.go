package course

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestProgress: figures of all trainers add up, what is not known is left out, and the time that is left follows
// from the mean rate of this start.
func TestProgress(t *testing.T) {
	began := time.Unix(1000, 0)
	two := func(after time.Duration) State {
		return State{Began: began, Trainers: map[string]Figures{
			"trainer-0": {Steps: 300, Samples: 19_200, At: began.Add(after), Values: map[string]float64{"samples_per_second": 900, "loss": 0.5, "auc": 0.75}},
			"trainer-1": {Steps: 100, Samples: 6_400, At: began.Add(after - 5*time.Second), Values: map[string]float64{"samples_per_second": 300, "loss": 0.7, "auc": math.NaN()}},
		}}
	}
	for name, tc := range map[string]struct {
		c           State
		done, total int64
		text, json  string
	}{
		"half-way": {two(20 * time.Second), 0, 1000, "step 400 of 1000, 25600 samples, 1200 samples/s, loss 0.5500, 30s left.\n",
			`{"step":400,"steps":1000,"samples":25600,"samples_per_second":1200,"loss":0.55,"auc":null,"seconds":20,"seconds_left":30}` + "\n"},
		"another start": {two(20 * time.Second), 500, 1000, "step 900 of 1000, 25600 samples, 1200 samples/s, loss 0.5500, 5s left.\n",
			`{"step":900,"steps":1000,"samples":25600,"samples_per_second":1200,"loss":0.55,"auc":null,"seconds":20,"seconds_left":5}` + "\n"},
		"some was learnt again": {two(20 * time.Second), 500, 800, "step 900 of 800, 25600 samples, 1200 samples/s, loss 0.5500, 0s left.\n",
			`{"step":900,"steps":800,"samples":25600,"samples_per_second":1200,"loss":0.55,"auc":null,"seconds":20,"seconds_left":0}` + "\n"},
		"no end is known": {two(20 * time.Second), 0, 0, "step 400, 25600 samples, 1200 samples/s, loss 0.5500.\n",
			`{"step":400,"samples":25600,"samples_per_second":1200,"loss":0.55,"auc":null,"seconds":20}` + "\n"},
		"a log whose clock went back": {two(-time.Second), 0, 1000, "step 400 of 1000, 25600 samples, 1200 samples/s, loss 0.5500.\n",
			`{"step":400,"steps":1000,"samples":25600,"samples_per_second":1200,"loss":0.55,"auc":null,"seconds":0}` + "\n"},
		"nothing is learnt yet": {State{Began: began, Trainers: map[string]Figures{"trainer-0": {}}}, 0, 10, "", ""},
		"nobody has begun":      {State{}, 0, 10, "", ""},
	} {
		p, ok := tc.c.Progress(tc.done, tc.total)
		if ok != (tc.text != "") {
			t.Errorf("%s: %+v, %v", name, p, ok)
			continue
		}
		for want, asJSON := range map[string]bool{tc.text: false, tc.json: true} {
			var got strings.Builder
			if err := p.Print(&got, asJSON); ok && (err != nil || got.String() != want) {
				t.Errorf("%s: %q, %v; want %q", name, got.String(), err, want)
			}
		}
	}
}

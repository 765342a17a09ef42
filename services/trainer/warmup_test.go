package trainer

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

// An export takes the newest answers along, of the topic as it is then; without one it is made, too.
func TestExportsTakeRequestsAlong(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.WarmUp = warmup.Config{Requests: 2, Topic: impression.Topic}
	w.run(cfg)
	has := func(version int) bool {
		t.Helper()
		w.until("export "+strconv.Itoa(version), func(j lineage.Job) bool { return len(j.Exports) == version })
		e, err := checkpoint.ReadEntry(filepath.Join(w.dir, cut.ExportsDir, "entry", strconv.Itoa(version)))
		if err != nil {
			t.Fatal(err)
		}
		return len(e.Files[warmupfile.Name]) > 0
	}
	export := func() {
		t.Helper()
		if _, err := w.command("checkpoint", `{"export":true}`); err != nil {
			t.Fatal(err)
		}
	}
	if has(1) {
		t.Error("there are requests of a topic that is not there")
	}
	if err := kafka.Plain.EnsureTopics(t.Context(), cfg.Brokers, map[string]int32{impression.Topic: 1}); err != nil {
		t.Fatal(err)
	}
	if export(); has(2) {
		t.Error("there are requests of an empty topic")
	}
	w.answers(t)
	if export(); !has(3) {
		t.Error("the requests were left behind")
	}
}

// answers writes impressions of three requests.
func (w *world) answers(t *testing.T) {
	t.Helper()
	var recs []kafka.Record
	for n := range 3 {
		i := &impression.Impression{RequestID: strconv.Itoa(n), Model: "movies", TimeUS: int64(n + 1), Inputs: map[string]impression.IDs{}}
		for _, f := range trainertest.SmallSpec().GetFeatures() {
			i.Inputs[f.GetName()] = impression.IDs{int64(n)}
		}
		value, err := impression.Encode(i)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, kafka.Record{Topic: impression.Topic, Value: value})
	}
	if _, err := w.writer.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
}

// What was asked follows from no record, so a deterministic job, whose exports are the same bytes each time,
// takes none along; neither does one without Kafka.
func TestWhoTakesRequestsAlong(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want int
	}{
		{[]string{"--kafka", "a:1"}, warmup.Default},
		{[]string{"--kafka", "a:1", "--warm-up-requests", "7"}, 7},
		{[]string{"--kafka", "a:1", "--warm-up-requests", "0"}, 0},
		{[]string{"--kafka", "a:1", "--deterministic"}, 0},
		{[]string{"--files", "a.json"}, 0},
	} {
		var c Config
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse(slices.Concat([]string{"--job", "j", "--model", "m", "--name", "n", "--dir", "/d"}, tc.args)); err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%v: %v", tc.args, err)
		}
		s, err := c.answered("demo")
		if err != nil || s == nil != (tc.want == 0) || s != nil && s.Requests != tc.want {
			t.Errorf("%v: %+v, %v", tc.args, s, err)
		}
	}
	c := Config{WarmUp: warmup.Config{Requests: -1}}
	if err := c.Validate(); err == nil {
		t.Error("-1 requests are taken")
	}
}

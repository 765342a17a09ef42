package fetch

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/lineage"
)

// parsed binds the flags to arguments.
func parsed(t *testing.T, args []string) *Config {
	t.Helper()
	c, fs := &Config{}, pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Register(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFetchChooses: the newest checkpoint is fetched, the one that is named, or all, those of a timeline that was left too;
// what there is not is said beside what there is.
func TestFetchChooses(t *testing.T) {
	j := lineage.Job{Restored: lineage.Restored{Checkpoint: 2, Before: 3}, Exports: []events.JSON[*training.ModelExported]{{V: &training.ModelExported{Version: 2}}}}
	for id := int64(1); id <= 4; id++ {
		j.Checkpoints = append(j.Checkpoints, events.JSON[*training.Checkpoint]{V: &training.Checkpoint{Id: id}})
	}
	one := lineage.State{Jobs: map[string]lineage.Job{"j": j}}
	two := lineage.State{Jobs: map[string]lineage.Job{"j": j, "k": {}}}
	for name, tc := range map[string]struct {
		args []string
		l    lineage.State
		ids  []int64
		says string
	}{
		"the newest":           {nil, one, []int64{4}, ""},
		"one":                  {[]string{"--checkpoint", "2"}, one, []int64{2}, ""},
		"all":                  {[]string{"--all"}, one, []int64{4, 2, 1, 3}, ""},
		"of a job":             {[]string{"--job", "j"}, two, []int64{4}, ""},
		"of which job":         {nil, two, nil, `knows the jobs ["j" "k"]`},
		"of an unknown job":    {[]string{"--job", "l"}, two, nil, `job "l" has no checkpoint`},
		"one that is not":      {[]string{"--checkpoint", "7"}, one, nil, "name one of [4 2 1]"},
		"of a timeline left":   {[]string{"--checkpoint", "3"}, one, nil, "not on disk"},
		"of a log without any": {nil, lineage.State{}, nil, "knows the jobs []"},
	} {
		c := parsed(t, tc.args)
		_, wanted, err := c.choose(tc.l)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		var ids []int64
		for _, w := range wanted {
			if ids = append(ids, w.Checkpoint.GetId()); (w.Exported != nil) != (w.Checkpoint.GetId() == 2) {
				t.Errorf("%s: with the export %v", name, w.Exported)
			}
		}
		if !slices.Equal(ids, tc.ids) {
			t.Errorf("%s: %v, want %v", name, ids, tc.ids)
		}
	}
	for _, args := range [][]string{{}, {"--to", "x", "--checkpoint", "-1"}, {"--to", "x", "--all", "--checkpoint", "1"}} {
		if err := parsed(t, args).Validate(); !errors.Is(err, flags.ErrUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

package warm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestReturn: a checkpoint of the job's own is returned to once; one that is not there is told, beside those that are.
func TestReturn(t *testing.T) {
	two := checkpoints(&training.Checkpoint{Id: 1}, &training.Checkpoint{Id: 2})
	for name, tc := range map[string]struct {
		cfg  Config
		now  lineage.Job
		back int64 // 0: no return
		says string
	}{
		"its own":        {Config{Checkpoint: "model.ckpt-2"}, lineage.Job{Checkpoints: two}, 2, ""},
		"once":           {Config{Checkpoint: "2"}, lineage.Job{Checkpoints: two, Returned: []int64{2}}, 0, ""},
		"another":        {Config{Checkpoint: "1"}, lineage.Job{Checkpoints: two, Returned: []int64{2}}, 1, ""},
		"not there":      {Config{Checkpoint: "3"}, lineage.Job{Checkpoints: two}, 0, "name one of [1 2]"},
		"no name":        {Config{}, lineage.Job{Checkpoints: two}, 0, ""},
		"another job's":  {Config{Dir: "d", Checkpoint: "2"}, lineage.Job{Checkpoints: two}, 0, ""},
		"not a number":   {Config{Checkpoint: "x"}, lineage.Job{Checkpoints: two}, 0, "is no checkpoint"},
		"deleted":        {Config{Checkpoint: "2"}, lineage.Job{Checkpoints: two, SavedUnix: -1}, 0, "not there"},
		"once, deleted":  {Config{Checkpoint: "2"}, lineage.Job{Checkpoints: two, SavedUnix: -1, Returned: []int64{2}}, 0, ""},
		"once, and told": {Config{Checkpoint: "2"}, lineage.Job{SavedUnix: -1, Returned: []int64{2}}, 0, ""},
		"without deltas": {Config{Checkpoint: "2"}, lineage.Job{Checkpoints: two, LastID: -1}, 0, "broken"},
	} {
		var said []*training.Event
		_, j := beginning(t, "", &said)
		j.Now = func() lineage.Job { return tc.now }
		was := j.Append
		j.Append = func(ctx context.Context, decide func(lineage.Job) []*training.Event) ([]uint64, error) {
			return was(ctx, func(lineage.Job) []*training.Event { return decide(tc.now) })
		}
		if tc.now.LastID < 0 {
			j.Deltas = func(context.Context) (uint64, error) { return 0, errors.New("broken") }
		}
		if tc.now.SavedUnix < 0 {
			j.Holds = func(context.Context, int64) error { return errors.New("not there") }
		}
		if told, done := tc.cfg.Done("movies", tc.now), strings.HasPrefix(name, "once"); (told != "") != done || done && !strings.Contains(told, "monolith job restore --job movies --checkpoint 2") {
			t.Errorf("%s: told %q", name, told)
		}
		seq, err := tc.cfg.Return(t.Context(), *j)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		if (seq > 0) != (tc.back > 0) || len(said) != min(int(tc.back), 1) {
			t.Fatalf("%s: at %d, said %v", name, seq, said)
		}
		if tc.back > 0 {
			if to := said[0].GetJobRestored(); to.GetCheckpoint() != tc.back || to.GetGeneration() != 5 || to.GetSyncSeq() != 77 {
				t.Errorf("%s: %v", name, to)
			}
		}
	}
}

package writer

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/events/znode"
)

// Proposals that come at once share an event, but not with one that writes to the same
// node, nor with what their session has proposed behind that one.
func TestShare(t *testing.T) {
	set := func(session int64, path string) *proposal {
		return &proposal{size: 10, event: write(session, &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path}}})}
	}
	many := func(session int64) (batch []*proposal) {
		for i := range packFrom {
			batch = append(batch, set(session, fmt.Sprintf("/n%d", i)))
		}
		return batch
	}
	closing := &proposal{size: 10, event: &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 2}}}}
	twice, behind := set(2, "/n0"), set(2, "/other")
	free := set(3, "/free")
	queue := &proposal{size: 10, event: write(4, makeNode("/n-", "", znode.Mode_PERSISTENT_SEQUENTIAL))}
	guess := set(6, "/n-0000000000")
	large := set(5, "/large")
	large.size = packBytes
	for name, tc := range map[string]struct {
		batch []*proposal
		first int // of the first event
		later []*proposal
	}{
		"few":                      {many(1)[:packFrom-1], 1, nil},
		"many":                     {many(1), packFrom, nil},
		"the same node":            {append(many(1), twice, behind, free), packFrom + 1, []*proposal{twice, behind}},
		"the end of a session":     {append(many(1), closing, behind, free), packFrom + 1, []*proposal{closing, behind}},
		"sequences":                {append(many(1), queue, queue), packFrom + 2, nil},
		"what a sequence makes":    {append(many(1), queue, guess, free), packFrom + 2, []*proposal{guess}},
		"too large for all":        {append(many(1), large, free), packFrom + 1, []*proposal{large}},
		"the same node, all of it": {[]*proposal{twice, twice, twice}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, later := coalesce(tc.batch)
			n := len(later)
			for _, in := range got {
				n += len(in)
			}
			if len(got[0]) != tc.first || len(later) != len(tc.later) || n != len(tc.batch) {
				t.Fatalf("%d events, %d in the first, %d later; want %d and %d", len(got), len(got[0]), len(later), tc.first, len(tc.later))
			}
			for i, p := range tc.later {
				if later[i] != p {
					t.Errorf("%d is another one", i)
				}
			}
		})
	}
}

// Few writers share one event; many are halved, unless still more are waiting.
func TestManyAreHalved(t *testing.T) {
	for _, tc := range []struct{ peak, queued, want int }{
		{1, 0, batchEvents}, {halvedFrom - 1, 0, batchEvents}, {halvedFrom, 0, halvedFrom / 2},
		{1023, 0, 512}, {1024, 24, 512}, {6000, 5000, 5000},
	} {
		if got := atMost(tc.peak, tc.queued); got != tc.want {
			t.Errorf("%d undecided, %d waiting: %d at once, want %d", tc.peak, tc.queued, got, tc.want)
		}
	}
}

package letters

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus/internal/wire"
)

const limit = 1 << 20

// counted are shares of a stream with a source that has used that much of it.
func counted(used int64) *shares {
	s := &shares{}
	var use wire.Usage
	use.Add("full", used)
	s.set(use, jetstream.StreamState{Msgs: 5, LastSeq: 20}, limit)
	return s
}

// Letters are counted again once this process has added a thirty-second of the stream, and, where
// one was refused, after ten seconds, since somebody may have removed some.
func TestWhenLettersAreCountedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if stale, _ := (&shares{}).fits("s", 1); !stale {
			t.Error("nothing was counted and it is known")
		}
		s := counted(limit / 4) // twice a source's share
		for after, want := range map[time.Duration]bool{0: false, recount: false, recount + time.Second: true} {
			s.at = time.Now().Add(-after)
			if stale, err := s.fits("full", 1); stale != want || err == nil {
				t.Errorf("refused %v after the count: stale %v, %v", after, stale, err)
			}
			if stale, err := s.fits("other", 1); stale || err != nil {
				t.Errorf("with room %v after the count: stale %v, %v", after, stale, err)
			}
		}
		s = counted(0)
		s.add("a", limit/32)
		if stale, err := s.fits("b", 1); stale || err != nil {
			t.Errorf("with a thirty-second added: stale %v, %v", stale, err)
		}
		s.add("a", 1)
		if stale, _ := s.fits("b", 1); !stale {
			t.Error("with more than a thirty-second added it is not counted")
		}
		s.limit = -1
		if stale, _ := s.fits("b", 1); stale {
			t.Error("a stream without a limit is counted again")
		}
		s.forget()
		if stale, _ := s.fits("b", 1); !stale {
			t.Error("what was forgotten is known")
		}
	})
}

// A count holds while the stream has taken messages and let none go; that it was looked at is
// noted, so that the next look is ten seconds later.
func TestWhetherACountHolds(t *testing.T) {
	state := func(msgs, last uint64) jetstream.StreamState { return jetstream.StreamState{Msgs: msgs, LastSeq: last} }
	for _, tc := range []struct {
		name  string
		st    jetstream.StreamState
		limit int64
		added int64
		known bool
		want  bool
	}{
		{"as it was", state(5, 20), limit, 0, true, true},
		{"three more", state(8, 23), limit, 0, true, true},
		{"with a thirty-second added", state(8, 23), limit, limit / 32, true, true},
		{"with more added", state(8, 23), limit, limit/32 + 1, true, false},
		{"never counted", state(5, 20), limit, 0, false, false},
		{"one has gone", state(4, 20), limit, 0, true, false},
		{"three more, and one has gone", state(7, 23), limit, 0, true, false},
		{"another limit", state(5, 20), limit + 1, 0, true, false},
		{"another stream", state(4, 19), limit, 0, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := counted(0)
			s.known, s.added, s.at = tc.known, tc.added, time.Time{}
			if got := s.unchanged(tc.st, tc.limit); got != tc.want {
				t.Errorf("it holds: %v", got)
			}
			if looked := !s.at.IsZero(); looked != tc.want {
				t.Errorf("looked at: %v", looked)
			}
		})
	}
}

package jetstream

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The clock is told by the quickest answer that says a time.
func TestTheQuickestAnswerTellsTheClock(t *testing.T) {
	asked := time.Unix(1000, 0)
	var s Survey
	for i, tc := range []struct {
		took, ahead  time.Duration // of the server's clock, at half way
		none         bool
		skew, within time.Duration
	}{
		{4 * time.Second, 0, true, 0, 0},
		{4 * time.Second, 7 * time.Second, false, -7 * time.Second, 2 * time.Second},
		{4 * time.Second, 9 * time.Second, false, -7 * time.Second, 2 * time.Second},
		{2 * time.Second, -3 * time.Second, false, 3 * time.Second, time.Second},
		{time.Second, 0, true, 3 * time.Second, time.Second},
		{8 * time.Second, 5 * time.Second, false, 3 * time.Second, time.Second},
		{0, time.Second, false, -time.Second, time.Nanosecond},
	} {
		said := asked.Add(tc.took/2 + tc.ahead)
		if tc.none {
			said = time.Time{}
		}
		s.clock(asked, tc.took, said)
		if s.Skew != tc.skew || s.Within != tc.within {
			t.Errorf("after answer %d: off by %v within %v, want %v within %v", i, s.Skew, s.Within, tc.skew, tc.within)
		}
	}
}

// Of a stream's replicas those are shown that lag or are away.
func TestReplicasThatAreBehind(t *testing.T) {
	c := &jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{
		{Name: "current", Current: true}, {Name: "lagging"}, {Name: "away", Current: true, Offline: true}, {Name: "gone", Offline: true},
	}}
	if got := behind(c); !slices.Equal(got, []string{"lagging", "away", "gone"}) {
		t.Errorf("behind are %q", got)
	}
	if got := behind(nil); got != nil {
		t.Errorf("of no cluster: %q", got)
	}
}

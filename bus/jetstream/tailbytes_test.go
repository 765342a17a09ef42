package jetstream

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/events"
)

// What followers share of the log's end is bounded by bytes, and by events where those are small;
// the newest one stays.
func TestTheTailIsBounded(t *testing.T) {
	for _, size := range []int{0, 100, wire.MaxMessage / 3, wire.MaxMessage} {
		f, data := &feed{}, make([]byte, size)
		for seq := uint64(1); seq <= 3*tailRecords; seq++ {
			if err := f.add(events.Recorded{Seq: seq, Data: data}); err != nil {
				t.Fatal(err)
			}
			if n := len(f.records); n == 0 || f.records[n-1].Seq != seq || f.bytes != n*size || n > 2*tailRecords || n > 1 && f.bytes > 2*tailBytes {
				t.Fatalf("of %d bytes each: %d events and %d bytes are kept behind %d", size, n, f.bytes, seq)
			}
		}
		if f.behind == 0 || f.records[0].Seq != f.behind+1 {
			t.Errorf("of %d bytes each: from %d on, behind %d", size, f.records[0].Seq, f.behind)
		}
	}
}

// Followers of a tail that has ended hear why, and never that nothing was wrong.
func TestTheEndOfATail(t *testing.T) {
	lost := errors.New("lost")
	for _, err := range []error{nil, lost} {
		f := &feed{}
		f.end(err)
		if f.err == nil || err != nil && !errors.Is(f.err, err) || f.records != nil {
			t.Errorf("ended with %v: %v", err, f.err)
		}
	}
}

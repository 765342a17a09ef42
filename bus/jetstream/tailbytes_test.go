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
	for _, size := range []int{0, 100, tailBytes / tailRecords, wire.MaxMessage / 3, wire.MaxMessage, tailBytes + 1, 3 * tailBytes} {
		f, data := &feed{}, make([]byte, size)
		most := max(1, min(tailRecords, tailBytes/max(size, 1))) // of what is kept when some are dropped
		want := 0
		for seq := uint64(1); seq <= 5*tailRecords; seq++ {
			if want++; want > 2*tailRecords || want*size > 2*tailBytes {
				want = most
			}
			if err := f.add(events.Recorded{Seq: seq, Data: data}); err != nil {
				t.Fatal(err)
			}
			if n := len(f.records); n != want || f.records[n-1].Seq != seq || f.bytes != n*size || f.records[0].Seq != f.behind+1 {
				t.Fatalf("of %d bytes each: %d events and %d bytes are kept behind %d, want %d events; from %d on, behind %d", size, n, f.bytes, seq, want, f.records[0].Seq, f.behind)
			}
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

// Whoever wants what is no longer kept is told so, and reads it elsewhere: nothing is passed over.
func TestWhatTheTailNoLongerKeeps(t *testing.T) {
	f := &feed{behind: 4, readers: 2}
	for seq := uint64(5); seq <= 6; seq++ {
		if err := f.add(events.Recorded{Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}
	to := make([]events.Recorded, 10)
	for next, want := range map[uint64]int{3: 0, 4: 0, 5: 2, 6: 1} {
		n, behind, more, err := f.take(next, to)
		if err != nil || n != want || behind != 4 || more != nil || n > 0 && to[0].Seq != next {
			t.Errorf("from %d on: %d events behind %d, %v", next, n, behind, err)
		}
	}
}

// A tail counts its readers, and lets nobody in once it has ended.
func TestReadersOfATail(t *testing.T) {
	f := &feed{}
	for range 2 {
		if !f.enter() {
			t.Fatal("a reader is not let in")
		}
	}
	for _, want := range []int{1, 0} {
		if left := f.exit(); left != want {
			t.Errorf("%d readers are left, want %d", left, want)
		}
	}
	if f.end(nil); f.enter() || f.readers != 0 {
		t.Errorf("%d readers of a tail that has ended", f.readers)
	}
}

// What every reader has taken is kept no longer.
func TestTheTailKeepsNothingForNobody(t *testing.T) {
	f := &feed{readers: 2}
	if err := f.add(events.Recorded{Seq: 1, Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	to := make([]events.Recorded, 10)
	for reader, kept := range []int{1, 0} { // each comes again for what is next
		if n, _, more, err := f.take(2, to); n != 0 || more == nil || err != nil {
			t.Fatalf("reader %d: %d events, %v", reader, n, err)
		}
		if len(f.records) != kept || f.bytes != kept || f.behind != uint64(1-kept) {
			t.Errorf("after reader %d: %d events and %d bytes are kept behind %d, want %d", reader, len(f.records), f.bytes, f.behind, kept)
		}
	}
}

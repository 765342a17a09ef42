package explain

import (
	"crypto/rand"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
)

// TestFindDeltaAmongOtherShards finds the last chunk of a flush that was published in
// several calls, with another shard's flush in between.
func TestFindDeltaAmongOtherShards(t *testing.T) {
	b := mem.New()
	defer b.Close()
	publish := func(shard string, d *delta.Delta) uint64 {
		t.Helper()
		raw, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		seq, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject("demo", "movies", shard), Expect: bus.Any, ID: rand.Text(), Data: raw})
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	ranges := func(from, to int64) []*delta.Range { return []*delta.Range{{Partition: 1, From: from, To: to}} }
	seq := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 7, Chunk: 0, Chunks: 2})
	publish("1", &delta.Delta{Job: "movies", Shard: 1, Epoch: 9, Step: 8, Chunks: 1, Ranges: ranges(900, 901)})
	publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 7, Chunk: 1, Chunks: 2, Ranges: ranges(10, 20)})
	early := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 8, Chunks: 1}) // other rows of its records wait
	set := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 8, Chunks: 1, Assigned: &delta.Assigned{RequestId: "r"}})
	late := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 8, Chunks: 1, Ranges: ranges(20, 25)})
	never := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 9, Chunks: 1})
	cut := publish("0", &delta.Delta{Job: "movies", Epoch: 3, Step: 9, Chunk: 0, Chunks: 2})
	publish("0", &delta.Delta{Job: "movies", Epoch: 4, Step: 9, Chunk: 0, Chunks: 1, Ranges: ranges(20, 30)})

	o, d, err := findDelta(t.Context(), b.Deltas(), seq)
	if err != nil || o.Seq != seq || o.Epoch != 3 || o.Step != 7 || d.GetShard() != 0 || !slices.Equal(o.Ranges, []kafkaRange{{1, 10, 20}}) {
		t.Errorf("delta %d: %+v, %v", seq, o, err)
	}
	o, _, err = findDelta(t.Context(), b.Deltas(), early)
	if err != nil || o.Seq != early || o.RangesAt != late || !slices.Equal(o.Ranges, []kafkaRange{{1, 20, 25}}) {
		t.Errorf("delta %d, whose ranges stand on %d: %+v, %v", early, late, o, err)
	}
	for _, seq := range []uint64{set, never} {
		if o, _, err := findDelta(t.Context(), b.Deltas(), seq); err != nil || o.Seq != seq || o.Ranges != nil || o.RangesAt > 0 {
			t.Errorf("delta %d, which is of no records or of some that nothing names: %+v, %v", seq, o, err)
		}
	}
	if o, _, err := findDelta(t.Context(), b.Deltas(), cut); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a flush that was never finished: %+v, %v", o, err)
	}
	if _, _, err := findDelta(t.Context(), b.Deltas(), 99); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("no such delta: %v", err)
	}
}

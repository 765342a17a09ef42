package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// A scan hands out each record once, in the order of its partition, from where it is to begin
// up to where the log ended when it began, whatever is written meanwhile.
func TestScans(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 2, "empty": 2}})
	brokers := []string{b.Addr()}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	write := func(partition int32, n int) {
		t.Helper()
		for i := range n {
			if _, err := w.Write(t.Context(), Record{Topic: "ratings", Partition: partition, Value: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 6)
	write(1, 3)
	if err := rawDeleteRecords(t.Context(), brokers[0], "ratings", 2); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int64][]int64{-1: {2, 3, 4, 5}, 0: {2, 3, 4, 5}, 2: {2, 3, 4, 5}, 3: {3, 4, 5}, 5: {5}, 6: nil, 100: nil} {
		var got []int64
		err := Plain.ScanPartition(t.Context(), brokers, "ratings", 0, from, func(r Record) error {
			if r.Topic != "ratings" || r.Partition != 0 {
				t.Errorf("a record of %s/%d", r.Topic, r.Partition)
			}
			got = append(got, r.Offset)
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("from %d on: %v, %v, want %v", from, got, err, want)
		}
	}
	seen := map[int32][]int64{}
	first, ends, err := Plain.Scan(t.Context(), brokers, "ratings", func(r Record) error {
		seen[r.Partition] = append(seen[r.Partition], r.Offset)
		write(r.Partition, 1) // which none of this scan may see
		return nil
	})
	if err != nil || !slices.Equal(seen[0], []int64{2, 3, 4, 5}) || !slices.Equal(seen[1], []int64{0, 1, 2}) {
		t.Errorf("scanned %v, %v", seen, err)
	}
	if !maps.Equal(first, map[int32]int64{0: 2, 1: 0}) || !maps.Equal(ends, map[int32]int64{0: 6, 1: 3}) {
		t.Errorf("scanned from %v to %v", first, ends)
	}
	if first, ends, err := Plain.Bounds(t.Context(), brokers, "ratings"); err != nil || !maps.Equal(first, map[int32]int64{0: 2, 1: 0}) || !maps.Equal(ends, map[int32]int64{0: 10, 1: 6}) {
		t.Errorf("bounds %v to %v, %v", first, ends, err)
	}
	never := func(Record) error { t.Error("a record of nothing"); return nil }
	if first, ends, err := Plain.Scan(t.Context(), brokers, "empty", never); err != nil || len(first) != 2 || len(ends) != 2 || ends[0] != 0 || ends[1] != 0 {
		t.Errorf("of an empty topic: %v to %v, %v", first, ends, err)
	}
	if _, _, err := Plain.Scan(t.Context(), brokers, "none", never); !errors.Is(err, ErrNoTopic) {
		t.Errorf("of a topic that is not there: %v", err)
	}
	if err := Plain.ScanPartition(t.Context(), brokers, "ratings", 2, 0, never); err == nil {
		t.Error("a partition that is not there is scanned")
	}
	enough, n := errors.New("enough"), 0
	if _, _, err := Plain.Scan(t.Context(), brokers, "ratings", func(Record) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("stopped at the first record: %d were handed out, %v", n, err)
	}
}

// Records that were removed from the end of a log leave a hole that a scan reads over.
func TestAScanEndsBehindAHole(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	brokers := []string{b.Addr()}
	aborted(t, brokers, "ratings")
	err := Plain.ScanPartition(t.Context(), brokers, "ratings", 0, 0, func(r Record) error { t.Errorf("%d was aborted", r.Offset); return nil })
	if err != nil {
		t.Error(err)
	}
}

// A range ends before its end, and within a batch.
func TestScanRange(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	defer w.Close()
	if _, err := w.Write(t.Context(), slices.Repeat([]Record{{Topic: "ratings", Value: []byte("x")}}, 9)...); err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]int64{{0, 9}, {3, 5}, {5, 5}} {
		at := r[0]
		err := Plain.ScanRange(t.Context(), []string{b.Addr()}, "ratings", 0, r[0], r[1], func(rec Record) error {
			if rec.Offset != at {
				t.Errorf("%v: offset %d, want %d", r, rec.Offset, at)
			}
			at++
			return nil
		})
		if err != nil || at != r[1] {
			t.Errorf("%v: to %d, %v", r, at, err)
		}
	}
}

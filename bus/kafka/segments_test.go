package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// written makes a broker's folder with n records on partition 0 of ratings, one a batch,
// and stops it as asked. It returns the partition's segment and where each batch begins.
func written(t *testing.T, dir string, n int, clean bool) (segment string, at []int) {
	t.Helper()
	b, err := StartBroker(BrokerConfig{Dir: dir, Topics: map[string]int32{"ratings": 1}})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	defer w.Close()
	for i := range n {
		if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: fmt.Appendf(nil, "value %d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "partitions", "ratings-0")
	if !clean { // a killed broker leaves no snapshot
		if err := os.Remove(filepath.Join(folder, "snapshot.json")); err != nil {
			t.Fatal(err)
		}
	}
	segment = filepath.Join(folder, "0.dat")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	for pos := 0; pos < len(raw); {
		at = append(at, pos)
		pos += 12 + int(binary.BigEndian.Uint32(raw[pos+8:]))
	}
	if len(at) != n {
		t.Fatalf("%d batches hold %d records", len(at), n)
	}
	return segment, at
}

func change(t *testing.T, file string, edit func([]byte) []byte) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, edit(raw), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A flipped bit anywhere but in the last batch would cut off what was acked behind it.
func TestDamagedSegmentIsRefused(t *testing.T) {
	for name, byteOf := range map[string]int{"a value": 70, "the checksum": 18, "the offset": 3, "the length": 10} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stopped cleanly %v", name, clean), func(t *testing.T) {
				dir := t.TempDir()
				segment, at := written(t, dir, 5, clean)
				before := snapshotOf(t, dir)
				change(t, segment, func(b []byte) []byte { b[at[2]+byteOf] ^= 4; return b })
				_, err := StartBroker(BrokerConfig{Dir: dir})
				if err == nil || !strings.Contains(err.Error(), "the batch of offset 2 in "+segment+" is damaged") {
					t.Fatal("StartBroker =", err)
				}
				change(t, segment, func(b []byte) []byte { b[at[2]+byteOf] ^= 4; return b })
				if after := snapshotOf(t, dir); !slices.Equal(before, after) {
					t.Errorf("the refusal changed the folder\nfrom %v\nto   %v", before, after)
				}
			})
		}
	}
}

// snapshotOf lists the files below dir with their contents, but for the lock.
func snapshotOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "partitions"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all = append(all, fmt.Sprintf("%s %x", path, raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What a crash leaves of the last batch is cut off, kept, and said; what is acked
// afterwards is read, in that life of the broker and in the next.
func TestHalfWrittenBatchIsCutAndKept(t *testing.T) {
	for name, edit := range map[string]func([]byte) []byte{
		"cut short":       func(b []byte) []byte { return b[:len(b)-7] },
		"torn":            func(b []byte) []byte { return append(b[:len(b)-7], make([]byte, 7)...) },
		"header cut":      func(b []byte) []byte { return append(b, b[:30]...) },
		"zeroes behind":   func(b []byte) []byte { return append(b, make([]byte, 4096)...) },
		"a damaged value": func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stopped cleanly %v", name, clean), func(t *testing.T) {
				dir := t.TempDir()
				segment, at := written(t, dir, 5, clean)
				change(t, segment, edit)
				raw, err := os.ReadFile(segment)
				if err != nil {
					t.Fatal(err)
				}
				kept := int64(4)
				lost := raw[at[4]:]
				if name == "header cut" || name == "zeroes behind" {
					whole := at[4] + 12 + int(binary.BigEndian.Uint32(raw[at[4]+8:]))
					kept, lost = 5, raw[whole:]
				}
				var log bytes.Buffer
				b := start(t, BrokerConfig{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
				aside, err := os.ReadFile(filepath.Join(filepath.Dir(segment), fmt.Sprintf("0.cut-at-%d", kept)))
				if err != nil || !bytes.Equal(aside, lost) {
					t.Errorf("kept aside: %d bytes, %v; cut were %d", len(aside), err, len(lost))
				}
				if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "cut off and kept aside") {
					t.Errorf("log: %s", log.String())
				}
				w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
				defer w.Close()
				for i := range int64(3) {
					if out, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("after")}); err != nil || out[0].Offset != kept+i {
						t.Fatal(out, err)
					}
				}
				read := func(b *Broker) {
					values, _ := readAll(t, t.Context(), newReader(t, []string{b.Addr()}, "ratings"), 0, kept+3)
					if len(values) != int(kept)+3 || values[kept-1] != fmt.Sprintf("value %d", kept-1) || values[kept+2] != "after" {
						t.Errorf("read %q", values)
					}
				}
				read(b)
				b.Close()
				read(start(t, BrokerConfig{Dir: dir}))
			})
		}
	}
}

// A whole batch at another offset than was due is no half of one: records in front of it are
// lost, or stand there twice, and nothing is cut off.
func TestABatchAtAnotherOffsetIsRefused(t *testing.T) {
	for offset, ok := range map[uint64]bool{4: true, 5: false, 9: false, 3: false, 0: false} {
		for _, clean := range []bool{true, false} {
			dir := t.TempDir()
			segment, at := written(t, dir, 5, clean)
			change(t, segment, func(b []byte) []byte { binary.BigEndian.PutUint64(b[at[4]:], offset); return b })
			before := snapshotOf(t, dir)
			b, err := StartBroker(BrokerConfig{Dir: dir})
			if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "the batch of offset 4 in "+segment+" is damaged") {
				t.Errorf("the last batch of offset 4 at %d: %v", offset, err)
			}
			if err == nil {
				b.Close()
			} else if after := snapshotOf(t, dir); !slices.Equal(before, after) {
				t.Errorf("the refusal changed the folder\nfrom %v\nto   %v", before, after)
			}
		}
	}
	type segments map[string][]byte
	for name, tc := range map[string]struct {
		files     segments
		compacted bool
		ok        bool
	}{
		"one":                        {segments{"0.dat": batchOf(0, 4, 1, 0, 5)}, false, true},
		"one that begins later":      {segments{"7.dat": batchOf(7, 0, 1, 0, 5)}, false, true},
		"two":                        {segments{"0.dat": batchOf(0, 4, 1, 0, 5), "5.dat": batchOf(5, 0, 1, 0, 5)}, false, true},
		"in the order of numbers":    {segments{"9.dat": batchOf(9, 0, 1, 0, 5), "10.dat": batchOf(10, 0, 1, 0, 5)}, false, true},
		"a hole between them":        {segments{"0.dat": batchOf(0, 3, 1, 0, 5), "5.dat": batchOf(5, 0, 1, 0, 5)}, false, false},
		"what compaction removed":    {segments{"0.dat": batchOf(0, 3, 1, 0, 5), "5.dat": batchOf(5, 0, 1, 0, 5)}, true, true},
		"what no compaction does":    {segments{"0.dat": batchOf(0, 5, 1, 0, 5), "5.dat": batchOf(5, 0, 1, 0, 5)}, true, false},
		"an empty first one":         {segments{"0.dat": nil, "5.dat": batchOf(5, 0, 1, 0, 5)}, false, false},
		"an empty last one":          {segments{"0.dat": batchOf(0, 4, 1, 0, 5), "5.dat": nil}, false, true},
		"a first one cut short":      {segments{"0.dat": batchOf(0, 4, 1, 0, 5)[:40], "5.dat": batchOf(5, 0, 1, 0, 5)}, false, false},
		"a last one cut short":       {segments{"0.dat": batchOf(0, 4, 1, 0, 5), "5.dat": batchOf(5, 0, 1, 0, 5)[:40]}, false, true},
		"files that are no segments": {segments{"0.dat": batchOf(0, 4, 1, 0, 5), "x.dat": {1}, "5.cut": {1}}, false, true},
	} {
		p := &partitionFolder{path: t.TempDir(), log: slog.New(slog.DiscardHandler), compacted: tc.compacted}
		for file, raw := range tc.files {
			if err := os.WriteFile(filepath.Join(p.path, file), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.list(), p.check()); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolderThatLostItsTopicsIsRefused(t *testing.T) {
	for name, edit := range map[string]func(t *testing.T, dir string){
		"the name changed": func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "topics.json"), func(b []byte) []byte { return bytes.Replace(b, []byte("ratings"), []byte("vatings"), 1) })
		},
		"fewer partitions": func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "topics.json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"partitions":1`), []byte(`"partitions":0`), 1)
			})
		},
		"no topics.json": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "topics.json")); err != nil {
				t.Fatal(err)
			}
		},
		"no meta.json": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "meta.json")); err != nil {
				t.Fatal(err)
			}
		},
		"half a topics.json": func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "topics.json"), func(b []byte) []byte { return b[:len(b)/2] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			written(t, dir, 3, true)
			edit(t, dir)
			if _, err := StartBroker(BrokerConfig{Dir: dir, Topics: map[string]int32{"ratings": 1}}); err == nil || !strings.Contains(err.Error(), "topics.json") || !strings.Contains(err.Error(), "restore") {
				t.Fatal("StartBroker =", err)
			}
		})
	}
}

// The end of a log is lost while the broker is down, say with an older copy of its
// folder, and written anew past what was read: leader epochs tell it.
func TestTruncatedLogIsNeverReadOn(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	segment, at := written(t, dir, 6, true)
	b := start(t, BrokerConfig{Dir: dir, Addr: addr})
	brokers := []string{addr}
	was, err := Plain.Describe(t.Context(), brokers, "ratings")
	if err != nil {
		t.Fatal(err)
	}
	epoch := was.Partitions[0].LeaderEpoch
	r := newReader(t, brokers, "ratings")
	readAll(t, t.Context(), r, 0, 6)
	b.Close()

	b = start(t, BrokerConfig{Dir: dir, Addr: addr})
	if _, next, err := r.Fetch(t.Context(), 6); next != 6 || err != nil {
		t.Fatal("after a mere restart:", next, err)
	}
	late := newReader(t, brokers, "ratings")
	if err := late.Check(t.Context(), 6, epoch); err != nil {
		t.Fatal("Check after a mere restart:", err)
	}
	b.Close()

	change(t, segment, func(b []byte) []byte { return b[:at[3]] })
	start(t, BrokerConfig{Dir: dir, Addr: addr})
	if err := late.Check(t.Context(), 6, epoch); !errors.Is(err, ErrTruncated) {
		t.Error("Check while the log is shorter:", err)
	}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	for range 10 {
		if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("new")}); err != nil {
			t.Fatal(err)
		}
	}
	if recs, _, err := r.Fetch(t.Context(), 6); !errors.Is(err, ErrTruncated) {
		t.Errorf("a reader that was at offset 6 goes on: %+v, %v", recs, err)
	}
	if err := late.Check(t.Context(), 6, epoch); !errors.Is(err, ErrTruncated) {
		t.Error("Check once the log is longer:", err)
	}
	if err := late.Check(t.Context(), 3, epoch); err != nil {
		t.Error("Check of what is still there:", err)
	}
}

// aborted leaves a record of a transaction that was aborted, and its end.
func aborted(t *testing.T, brokers []string, topic string) {
	t.Helper()
	c := adminClient(t, brokers, kgo.TransactionalID("t"), kgo.DefaultProduceTopic(topic))
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, kgo.StringRecord("aborted")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// What a later leader has of an aborted transaction and its marker is read past, and is no loss to the one
// who leads next.
func TestHolesOfALaterLeaderAreNoLoss(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	written(t, dir, 3, true)
	b := start(t, BrokerConfig{Dir: dir, Addr: addr})
	r := newReader(t, []string{addr}, "ratings")
	if r.LeaderEpoch() != -1 {
		t.Errorf("leader epoch %d before any call", r.LeaderEpoch())
	}
	readAll(t, t.Context(), r, 0, 3)
	first := r.LeaderEpoch()
	b.Close()
	b = start(t, BrokerConfig{Dir: dir, Addr: addr})
	aborted(t, []string{addr}, "ratings")
	if values, _ := readAll(t, t.Context(), r, 3, 5); len(values) != 0 {
		t.Errorf("read %q, which was aborted", values)
	}
	second := r.LeaderEpoch()
	b.Close()
	start(t, BrokerConfig{Dir: dir, Addr: addr})
	if _, next, err := r.Fetch(t.Context(), 5); next != 5 || err != nil {
		t.Errorf("Fetch behind the holes: %d, %v", next, err)
	}
	if third := r.LeaderEpoch(); first < 0 || second <= first || third <= second {
		t.Errorf("leader epochs %d, %d, %d", first, second, third)
	}
	if err := r.Check(t.Context(), 5, second); err != nil {
		t.Errorf("Check of all: %v", err)
	}
	if err := r.Check(t.Context(), 5, first); !errors.Is(err, ErrTruncated) {
		t.Errorf("Check of more than the first leader had: %v", err)
	}
	if err := r.Check(t.Context(), 3, first); err != nil {
		t.Errorf("Check of what it had: %v", err)
	}
}

// A broker that dies between writing a transaction's records and their index entry must
// not take them for committed afterwards.
func TestAbortedStaysAbortedWithoutItsIndex(t *testing.T) {
	dir := t.TempDir()
	b := start(t, BrokerConfig{Dir: dir, Topics: map[string]int32{"ratings": 1}})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	aborted(t, []string{b.Addr()}, "ratings")
	b.Close()
	folder := filepath.Join(dir, "partitions", "ratings-0")
	if err := os.Remove(filepath.Join(folder, "snapshot.json")); err != nil {
		t.Fatal(err)
	}
	change(t, filepath.Join(folder, "0.idx"), func(b []byte) []byte { return b[indexBytes:] })
	b = start(t, BrokerConfig{Dir: dir})
	if values, _ := readAll(t, ctx, newReader(t, []string{b.Addr()}, "ratings"), 0, 2); len(values) != 0 {
		t.Fatalf("read %q, which was aborted", values)
	}
}

// Retention frees what is old, keeps the log's end over a crash, and spares other topics.
func TestRetention(t *testing.T) {
	dir := t.TempDir()
	cfg := BrokerConfig{Dir: dir, Topics: map[string]int32{"ratings": 1, "predictions": 1}}
	b := start(t, cfg)
	brokers := []string{b.Addr()}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	now := time.UnixMilli(1_700_000_000_000)
	for _, topic := range []string{"ratings", "predictions"} {
		for i := range 10 {
			if _, err := w.Write(t.Context(), Record{Topic: topic, Value: []byte("x"), Time: now.Add(time.Duration(i-10) * time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := func(topic string, want int64) {
		t.Helper()
		first, end, err := newReader(t, brokers, topic).Bounds(t.Context())
		if first != want || end != 10 || err != nil {
			t.Errorf("%s holds %d to %d, %v; want %d to 10", topic, first, end, err, want)
		}
	}
	retain := map[string]time.Duration{"predictions": 4*time.Hour + time.Minute, "ratings": 0}
	if err := expireOnce(t.Context(), brokers[0], retain, now); err != nil {
		t.Fatal(err)
	}
	kept("predictions", 6)
	kept("ratings", 0)
	if err := expireOnce(t.Context(), brokers[0], retain, now.Add(1000*time.Hour)); err != nil {
		t.Fatal(err)
	}
	kept("predictions", 9)
	b.Close()
	if err := os.Remove(filepath.Join(dir, "partitions", "predictions-0", "snapshot.json")); err != nil {
		t.Fatal(err)
	}
	b = start(t, cfg)
	brokers = []string{b.Addr()}
	if _, end, err := newReader(t, brokers, "predictions").Bounds(t.Context()); end != 10 || err != nil {
		t.Errorf("after a crash predictions end at %d, %v", end, err)
	}
}

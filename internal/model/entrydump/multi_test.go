package entrydump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/table"
)

func TestMultiTables(t *testing.T) {
	all := every()
	cfgs := []table.Config{config("b", all["adam"]), config("a", all["ftrl"], all["sgd"]), config("c", all["adagrad"])}
	path := filepath.Join(t.TempDir(), "model.ckpt-9.assets", "MonolithMultiHashTable_0")
	var parts []Part
	for i, cfg := range cfgs {
		parts = append(parts, Part{Config: cfg, Table: taught(t, cfg, 700*i)})
	}
	if err := SaveMulti(path, parts, Options{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	got, err := RestoreMulti(path, cfgs, nil, Reading{})
	if err != nil || len(got.Skipped)+len(got.Absent) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, p := range parts {
		if diff := cmp.Diff(p.Table.Snapshot(), got.Tables[p.Config.Name].Snapshot()); diff != "" {
			t.Errorf("table %s (-saved +restored):\n%s", p.Config.Name, diff)
		}
	}
	// Tables come by name, with their counts.
	s := must(openSet(split(path)))
	if counts := must(s.counts(1)); !slices.Equal(counts, []count{{"a", 233}, {"b", 0}, {"c", 467}}) {
		t.Errorf("shard 1 counts %v", counts)
	}

	// What there was stays, but for rows that are in the files; tables of one side only
	// are told.
	old := must(table.New(cfgs[2]))
	if err := old.Restore([]table.Row{{ID: 5<<48 | 5, Values: []float32{9, 9, 9}}, {ID: -5, Values: []float32{8, 8, 8}}}); err != nil {
		t.Fatal(err)
	}
	oldHash := old.Hash()
	other := config("z", all["sgd"])
	got, err = RestoreMulti(path, []table.Config{cfgs[2], other}, map[string]*table.Table{"c": old, "z": nil}, Reading{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Skipped, []string{"a", "b"}) || !slices.Equal(got.Absent, []string{"z"}) {
		t.Errorf("skipped %v, absent %v", got.Skipped, got.Absent)
	}
	rows, ok := got.Tables["c"].LookupEntries([]int64{-5, 5<<48 | 5})
	if got.Tables["c"].Len() != 1401 || !ok[0] || rows[0].Values[0] != 8 || !ok[1] || rows[1].Values[0] == 9 {
		t.Errorf("beside old rows: %d, %v", got.Tables["c"].Len(), rows)
	}
	if old.Hash() != oldHash {
		t.Error("the old table was changed")
	}
	// A limit that the old rows break.
	limited := cfgs[2]
	limited.MaxRows = 1400
	if _, err := RestoreMulti(path, []table.Config{limited}, map[string]*table.Table{"c": old}, Reading{}); !errors.Is(err, table.ErrFull) || old.Hash() != oldHash {
		t.Errorf("over the limit: %v", err)
	}
	for name, parts := range map[string][]Part{"a name twice": {parts[0], parts[0]}} {
		if err := SaveMulti(path, parts, Options{}); err == nil {
			t.Errorf("%s is saved", name)
		}
	}
	if _, err := RestoreMulti(path, []table.Config{other, other}, nil, Reading{}); err == nil {
		t.Error("two tables of a name are restored")
	}
}

// multi is a foreign multi-table set of one shard.
func multi(t testing.TB, data []byte, counts ...*monolithpb.MultiHashTableMetadata) string {
	t.Helper()
	dir := t.TempDir()
	var meta [][]byte
	for _, c := range counts {
		meta = append(meta, must(proto.Marshal(c)))
	}
	foreign(t, dir, "m", data)
	foreign(t, dir, "m.meta", records(meta...))
	return filepath.Join(dir, "m")
}

func framed(b []byte) []byte {
	var out appender
	f := newFramer(&out)
	_, _ = f.Write(b)
	_ = f.Flush()
	return out.b
}

func TestMultiRefuses(t *testing.T) {
	cfg := config("a", every()["sgd"])
	codec := must(CodecOf(cfg))
	row := func(id int64) []byte {
		return must(codec.Append(nil, table.Row{ID: id, Values: []float32{1, 2, 3}}))
	}
	two := framed(records(row(1), row(2)))
	entry := func(name string, n uint64) *monolithpb.MultiHashTableMetadata {
		return &monolithpb.MultiHashTableMetadata{TableName: &name, NumEntries: &n}
	}
	block := func(size uint32, b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, size), b...) }
	for _, tc := range []struct {
		name string
		path string
		says string // "" is fine
	}{
		{"whole", multi(t, two, entry("a", 2)), ""},
		{"another's rows between", multi(t, two, entry("0", 1), entry("a", 1)), ""},
		{"a row fewer than counted", multi(t, two, entry("a", 3)), "ends after 2 of the 3 rows of table a"},
		{"a huge count", multi(t, two, entry("a", 1<<63)), "ends after 2 of"},
		{"a row more than counted", multi(t, two, entry("a", 1)), "goes on behind the 1 rows"},
		{"a table twice", multi(t, two, entry("a", 1), entry("a", 1)), "or one again"},
		{"a nameless table", multi(t, two, &monolithpb.MultiHashTableMetadata{NumEntries: proto.Uint64(2)}), "names no table"},
		{"cut in a block", multi(t, two[:len(two)-1], entry("a", 2)), "ends inside snappy block 0"},
		{"cut in a length", multi(t, append(slices.Clone(two), 0, 0), entry("a", 2)), "ends inside snappy block 1"},
		{"an empty block", multi(t, block(0), entry("a", 2)), "block 0 has 0 bytes"},
		{"a huge block", multi(t, block(1<<31), entry("a", 2)), "are accepted"},
		{"a block that never comes", multi(t, block(10<<20, 1, 2, 3), entry("a", 2)), "ends inside"},
		{"a block that claims too much", multi(t, block(5, 0xff, 0xff, 0xff, 0x7f, 0), entry("a", 2)), "claims to hold"},
		{"no snappy", multi(t, block(5, 4, 0xff, 0xff, 0xff, 0xff), entry("a", 2)), "snappy"},
	} {
		_, err := RestoreMulti(tc.path, []table.Config{cfg}, nil, Reading{})
		if tc.says == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		} else if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want it to say %q", tc.name, err, tc.says)
		}
	}
	path := multi(t, two, entry("a", 2))
	if err := os.Remove(path + ".meta-00000-of-00001"); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreMulti(path, []table.Config{cfg}, nil, Reading{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its meta file: %v", err)
	}
}

func TestFraming(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 77} {
		for _, dense := range []bool{false, true} {
			b := make([]byte, size)
			if !dense {
				for i := range b {
					b[i] = byte(r.Uint32())
				}
			}
			stream := framed(b)
			blocks := 0
			for at := 0; at < len(stream); at += 4 + int(binary.BigEndian.Uint32(stream[at:])) {
				blocks++
			}
			if want := (size + blockSize - 1) / blockSize; blocks != want {
				t.Errorf("%d bytes make %d blocks, want %d", size, blocks, want)
			}
			got, err := io.ReadAll(newUnframer(iotest.HalfReader(bytes.NewReader(stream))))
			if err != nil || !bytes.Equal(got, b) {
				t.Errorf("%d bytes come back as %d, %v", size, len(got), err)
			}
		}
	}
}

func FuzzMulti(f *testing.F) {
	cfg := config("a", every()["adagrad"])
	dir := f.TempDir()
	path := filepath.Join(dir, "m")
	if err := SaveMulti(path, []Part{{Config: cfg, Table: taught(f, cfg, 3)}}, Options{Shards: 1}); err != nil {
		f.Fatal(err)
	}
	data, meta := must(os.ReadFile(path+"-00000-of-00001")), must(os.ReadFile(path+".meta-00000-of-00001"))
	f.Add(data, meta)
	f.Add(data[:len(data)/2], meta)
	f.Add([]byte{0, 0, 0, 5, 0xff, 0xff, 0xff, 0x7f, 0}, meta)
	f.Fuzz(func(t *testing.T, data, meta []byte) {
		dir := t.TempDir()
		foreign(t, dir, "m", data)
		foreign(t, dir, "m.meta", meta)
		got, err := RestoreMulti(filepath.Join(dir, "m"), []table.Config{cfg}, nil, Reading{})
		if (err == nil) == (got == nil) {
			t.Fatalf("%v, %v", got, err)
		}
	})
}

func TestFilterFiles(t *testing.T) {
	make := func(capacity uint64) *filter.SlidingCounter {
		return must(filter.NewSlidingCounter(filter.SlidingConfig{Capacity: capacity, Splits: 7, Thresholds: filter.Thresholds{Default: 3}}))
	}
	f := make(2_000_000)
	for id := range int64(400_000) {
		f.Admit(id, uint32(1+id%3))
	}
	dir := t.TempDir()
	path := filepath.Join(dir, FilterName(3))
	if err := SaveFilter(path, f, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hash_filter_3-00000-of-00001")); err != nil {
		t.Fatal(err)
	}
	got := make(2_000_000)
	if err := RestoreFilter(path, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(must(got.MarshalBinary()), must(f.MarshalBinary())) {
		t.Error("the filter comes back otherwise")
	}
	if err := RestoreFilter(path, make(1000)); !errors.Is(err, filter.ErrState) {
		t.Errorf("another capacity: %v", err)
	}
	// What the original wrote: a record with its own message first.
	foreign(t, dir, "hash_filter_4", records([]byte{0x10, 0x20}, []byte{1}))
	before := must(got.MarshalBinary())
	if err := RestoreFilter(filepath.Join(dir, "hash_filter_4"), got); !errors.Is(err, ErrForeign) {
		t.Errorf("the original's filter: %v", err)
	}
	whole := must(os.ReadFile(path + "-00000-of-00001"))
	head := func(size uint64, rest ...[]byte) []byte {
		return records(append([][]byte{binary.LittleEndian.AppendUint64([]byte("MLFS\x01"), size)}, rest...)...)
	}
	for name, b := range map[string][]byte{
		"no header": nil, "cut": whole[:len(whole)-17], "a huge length": head(1<<62, []byte("x")), "too much": head(1, []byte("xy")),
		"no checksum": head(1, []byte("x")), "another checksum": head(1, []byte("x"), []byte("sum")), "empty records": head(2, []byte{}, []byte{}),
		"more behind": append(slices.Clone(whole), records([]byte("x"))...),
	} {
		foreign(t, dir, "hash_filter_5", append([]byte{}, b...))
		if err := RestoreFilter(filepath.Join(dir, "hash_filter_5"), got); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	foreign(t, dir, "hash_filter_5", records([]byte("MLFS\x02")))
	if err := RestoreFilter(filepath.Join(dir, "hash_filter_5"), got); !errors.Is(err, ErrMismatch) {
		t.Errorf("another version: %v", err)
	}
	if !bytes.Equal(must(got.MarshalBinary()), before) {
		t.Error("a refused file has changed the filter")
	}
}

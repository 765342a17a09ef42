package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

// A row's time is 32 bits of seconds: the last of them is read, and the next, which would
// come back as 1970, is refused.
func TestARowsTimeFitsItsBits(t *testing.T) {
	for unix, ok := range map[int64]bool{-1: false, 0: true, math.MaxUint32: true, math.MaxUint32 + 1: false, math.MaxInt64: false, math.MinInt64: false} {
		data, err := proto.Marshal(&monolithpb.EntryDump{Id: proto.Int64(8), Num: []float32{1}, LastUpdateTsSec: proto.Int64(unix)})
		if err != nil {
			t.Fatal(err)
		}
		row, err := decodeRow(data)
		if (err == nil) != ok || ok && int64(row.UnixSec) != unix {
			t.Errorf("updated at %d: %+v, %v", unix, row, err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), "32 bits")) {
			t.Errorf("updated at %d: %v", unix, err)
		}
	}
	data, err := proto.Marshal(&monolithpb.EntryDump{Num: []float32{1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRow(data); err == nil {
		t.Error("a row without an id was read")
	}
	dir, m := write(t, &Shard{Tables: map[string][]table.Row{"t": {{ID: 1, Values: []float32{1}, UnixSec: math.MaxUint32}}}})
	if s, err := ReadShard(dir); err != nil || s.Tables["t"][0].UnixSec != math.MaxUint32 {
		t.Errorf("%+v, %v of %+v", s, err, m)
	}
}

// What a row's optimizer was, in files without a layout.
func TestSlotsOfOneOptimizer(t *testing.T) {
	adagrad := func(norm ...float32) *monolithpb.SingleOptimizerDump {
		return &monolithpb.SingleOptimizerDump{Type: &monolithpb.SingleOptimizerDump_Adagrad{Adagrad: &monolithpb.AdagradOptimizerDump{Norm: norm}}}
	}
	sgd := &monolithpb.SingleOptimizerDump{Type: &monolithpb.SingleOptimizerDump_Sgd{Sgd: &monolithpb.SgdOptimizerDump{}}}
	for name, tc := range map[string]struct {
		dumps []*monolithpb.SingleOptimizerDump
		slots []float32
		ok    bool
	}{
		"none": {nil, nil, true}, "adagrad": {[]*monolithpb.SingleOptimizerDump{adagrad(3, 4)}, []float32{3, 4}, true},
		"sgd":         {[]*monolithpb.SingleOptimizerDump{sgd}, nil, true},
		"two adagrad": {[]*monolithpb.SingleOptimizerDump{adagrad(3), adagrad(4)}, nil, false},
		"two sgd":     {[]*monolithpb.SingleOptimizerDump{sgd, sgd}, nil, false},
		"unset":       {[]*monolithpb.SingleOptimizerDump{{}}, nil, false},
	} {
		d := dump(5, []float32{1}, nil)
		if tc.dumps != nil {
			d.Opt = &monolithpb.OptimizerDump{Dump: tc.dumps}
		}
		data, err := proto.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		row, err := decodeRow(data)
		if (err == nil) != tc.ok || tc.ok && !slices.Equal(row.Slots, tc.slots) {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
}

func TestRowsOfAFileAreInOrder(t *testing.T) {
	one := func(id int64, values ...float32) table.Row { return table.Row{ID: id, Values: values} }
	for name, tc := range map[string]struct {
		rows []table.Row
		says string
	}{
		"ascending":  {[]table.Row{one(-2, 1), one(0, 1), one(7, 1)}, ""},
		"equal":      {[]table.Row{one(3, 1), one(3, 1)}, "stands behind"},
		"descending": {[]table.Row{one(3, 1), one(2, 1)}, "stands behind"},
		"too wide":   {[]table.Row{one(3, 1), one(4, 1, 2)}, "has 2 values"},
		"too narrow": {[]table.Row{one(3)}, "has 0 values"},
	} {
		var file bytes.Buffer
		info := TableInfo{Name: "t", Dim: 1, Rows: uint64(len(tc.rows))}
		if err := writeTable(tfrecord.NewWriter(&file), &info, tc.rows); err != nil {
			t.Fatal(err)
		}
		whole := bytes.Clone(file.Bytes())
		got, err := allRows(tfrecord.NewReader(&file, 0), &info)
		if tc.says == "" {
			if err != nil || len(got) != len(tc.rows) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			for _, rows := range []uint64{info.Rows - 1, info.Rows + 1} {
				other := info
				other.Rows = rows
				if _, err := allRows(tfrecord.NewReader(bytes.NewReader(whole), 0), &other); err == nil || !strings.Contains(err.Error(), "the manifest says") {
					t.Errorf("%s, a manifest of %d rows: %v", name, rows, err)
				}
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestVariablesAreThoseOfTheManifest(t *testing.T) {
	for name, tc := range map[string]struct {
		id     int64
		shapes [][]uint32
		ok     bool
	}{
		"first": {0, [][]uint32{{1}, {0}}, true}, "last": {1, [][]uint32{{0}, {1}}, true},
		"none": {2, [][]uint32{{0}, {1}}, false}, "negative": {-1, [][]uint32{{0}, {1}}, false},
		"another's size": {1, [][]uint32{{1}, {0}}, false}, "a shape less": {0, [][]uint32{{1}}, false},
	} {
		data, err := proto.Marshal(dump(tc.id, []float32{5}, nil))
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := tfrecord.NewWriter(&file).Write(data); err != nil {
			t.Fatal(err)
		}
		if vars, _, err := readDense(tfrecord.NewReader(&file, 0), []string{"a", "b"}, tc.shapes, nil); (err == nil) != tc.ok {
			t.Errorf("%s: %v, %v", name, vars, err)
		}
	}
	if n, ok := sizeOf([]uint32{1 << 14, 1 << 14}); !ok || n != maxVariable {
		t.Errorf("a variable at its bound: %d, %v", n, ok)
	}
	if _, ok := sizeOf([]uint32{maxVariable + 1}); ok {
		t.Error("a variable beyond its bound passes")
	}
}

// Neither a parameter nor a slot that is no number is written: no table would take it back.
func TestWhatIsNotFiniteIsNotWritten(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, change := range map[string]func(*Shard){
		"value":         func(s *Shard) { s.Tables["user"][1].Values[1] = nan },
		"slot":          func(s *Shard) { s.Tables["user"][0].Slots[1] = inf },
		"variable":      func(s *Shard) { s.Dense["d/bias"].Values[2] = inf },
		"variable slot": func(s *Shard) { s.Dense["d/kernel"].Slots[0] = nan },
	} {
		s := small()
		change(s)
		_, err := WriteShard(filepath.Join(t.TempDir(), "ps_0"), s)
		if !errors.Is(err, ErrNotFinite) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := HashShard(s); !errors.Is(err, ErrNotFinite) {
			t.Errorf("hash of a %s: %v", name, err)
		}
	}
}

// Each thing that the first format cannot say makes it the second, and assignments the
// third.
func TestWhatDecidesTheFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Shard)
		want   int
	}{
		"nothing":     {func(*Shard) {}, 1},
		"a clock":     {func(s *Shard) { s.Manifest.Tables[0].Clock = 1 }, 2},
		"slots":       {func(s *Shard) { s.Manifest.Tables[0].Slots = 1 }, 2},
		"a filter":    {func(s *Shard) { s.Filters = map[string][]byte{"empty": {1}} }, 2},
		"an id":       {func(s *Shard) { s.Manifest.Assigned = []string{"x"} }, 3},
		"id and more": {func(s *Shard) { s.Manifest.Assigned = []string{"x"}; s.Manifest.Tables[0].Clock = 1 }, 3},
	} {
		s := small()
		tc.change(s)
		dir, m := write(t, s)
		if got, err := ReadManifest(dir); err != nil || m.Format != tc.want || got.Format != tc.want {
			t.Errorf("%s: format %d, read as %d, %v", name, m.Format, got.Format, err)
		}
		if hash, err := HashShard(s); err != nil || hash != m.Hash {
			t.Errorf("%s: HashShard %s, %v; the manifest says %s", name, hash, err, m.Hash)
		}
	}
}

func TestDimensionsOfTables(t *testing.T) {
	wide := func(n int) *Shard {
		return &Shard{Tables: map[string][]table.Row{"t": {{ID: 1, Values: make([]float32, n)}}}}
	}
	write(t, wide(table.MaxDim))
	if _, err := WriteShard(filepath.Join(t.TempDir(), "x"), wide(table.MaxDim+1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("rows that no table holds: %v", err)
	}
	s := small()
	s.Manifest.Tables = []TableInfo{{Name: "user", Dim: 2, Clock: 5}, {Name: "empty", Dim: 1}, {Name: "a/b \"c\""}}
	if _, m := write(t, s); len(m.Tables) != 3 || m.Tables[2].Clock != 5 || m.Tables[0].Dim != 1 {
		t.Errorf("%+v", m.Tables)
	}
	s.Manifest.Tables = []TableInfo{{Name: "empty", Dim: -1}}
	if _, err := WriteShard(filepath.Join(t.TempDir(), "x"), s); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative dimension: %v", err)
	}
	s = small()
	s.Filters = map[string][]byte{"user": {1}, "empty": {2}} // with rows alone, and with a declaration alone
	write(t, s)
	s.Tables["user"][0].Slots = make([]float32, maxRecord)
	s.Tables["user"][1].Slots = make([]float32, maxRecord)
	if _, err := WriteShard(filepath.Join(t.TempDir(), "x"), s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "are allowed") {
		t.Errorf("a row that no reader takes: %v", err)
	}
}

// Several records hold a filter's state.
func TestALongFilter(t *testing.T) {
	s := small()
	s.Filters = map[string][]byte{"user": bytes.Repeat([]byte{7}, 2*filterChunk+1)}
	dir, _ := write(t, s)
	if got, err := ReadShard(dir); err != nil || !bytes.Equal(got.Filters["user"], s.Filters["user"]) {
		t.Errorf("%d bytes, %v", len(got.Filters["user"]), err)
	}
}

// What has no variables has no file of them.
func TestWithoutVariables(t *testing.T) {
	s := small()
	s.Dense = nil
	dir, m := write(t, s)
	if names := files(t, dir); slices.Contains(names, denseName) || len(m.Files) != 3 {
		t.Errorf("a shard has %q, %v", names, m.Files)
	}
	entry := filepath.Join(t.TempDir(), "1")
	if err := WriteEntry(entry, &Entry{Spec: modelspec.MovieRanking(), Version: 1}); err != nil {
		t.Fatal(err)
	}
	if names := files(t, entry); !slices.Equal(names, []string{ManifestName, specName}) {
		t.Errorf("an entry has %q", names)
	}
	if got, err := ReadEntry(entry); err != nil || len(got.Dense) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Only names that a writer gives are swept, all digits of them.
func TestSweepTakesOnlyItsOwn(t *testing.T) {
	dir, _ := write(t, small())
	parent := filepath.Dir(dir)
	for _, name := range []string{".tmp-ps_1-0", ".tmp-ps_1-9", ".tmp-ps_1-", ".tmp-ps_1-/", ".tmp-ps_1-:", ".tmp-ps_1-1:"} {
		if err := os.MkdirAll(filepath.Join(parent, strings.ReplaceAll(name, "/", ".")), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := WriteShard(dir, small()); err != nil {
		t.Fatal(err)
	}
	if names := files(t, parent); !slices.Equal(names, []string{".tmp-ps_1-", ".tmp-ps_1-.", ".tmp-ps_1-1:", ".tmp-ps_1-:", "ps_1"}) {
		t.Errorf("after the sweep: %q", names)
	}
	if !digits("0") || !digits("9") || digits("/") || digits(":") {
		t.Error("digits are 0 to 9")
	}
}

func TestWithoutTheSystemsHelpNothingIsReplaced(t *testing.T) {
	parent := t.TempDir()
	a, b := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	for _, d := range []string{a, b} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, rename := range map[string]func(from, to string) error{"by hand": renameOver, "by the system": renameNew} {
		if err := rename(a, b); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s over what is there: %v", name, err)
		}
		if err := rename(a, filepath.Join(parent, "c")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Rename(filepath.Join(parent, "c"), a); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := swap(a, b); err == nil {
		t.Error("nothing was swapped with something")
	}
	if names := files(t, parent); !slices.Equal(names, []string{"b"}) {
		t.Errorf("a failed swap left %q", names)
	}
	if err := exchange(a, b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was exchanged with something: %v", err)
	}
}

// A manifest or a declaration may have 16 MiB, and is not read beyond.
func TestSmallFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	d, err := openFolder(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	for size, ok := range map[int64]bool{maxSmall: true, maxSmall + 1: false} {
		if err := os.WriteFile(filepath.Join(dir, "small"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "small"), size); err != nil {
			t.Fatal(err)
		}
		if text, err := d.readSmall("small"); (err == nil) != ok || ok && int64(len(text)) != size || !ok && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %d, %v", size, len(text), err)
		}
	}
}

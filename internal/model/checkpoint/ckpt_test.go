package checkpoint

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/kernels/table"
)

func small() *Shard {
	return &Shard{
		Manifest: Manifest{
			Job: "movies", Checkpoint: 3, Shard: 1, Shards: 2, Epoch: 4, Step: 500, Turn: 6, Generation: 7, SyncSeq: 88,
			Offsets: map[int32]int64{0: 100, 3: 250},
			Tables:  []TableInfo{{Name: "empty", Dim: 5}},
		},
		Tables: map[string][]table.Row{
			"user": {
				{ID: -9, Values: []float32{1, 2}, Slots: []float32{.1, .2}, UnixSec: 1700000000, Tag: 1 << 63},
				{ID: 1<<48 | 5, Values: []float32{3, -4}, Slots: []float32{.3, .4}},
			},
			"a/b \"c\"": {{ID: 1, Values: []float32{7}, UnixSec: 1, Tag: 2}},
		},
		Dense: map[string]Variable{
			"d/kernel": {Shape: []uint32{2, 3}, Values: []float32{1, 2, 3, 4, 5, 6}, Slots: []float32{6, 5, 4, 3, 2, 1}},
			"d/bias":   {Shape: []uint32{3}, Values: []float32{0, 0, -1}},
			"scalar":   {Values: []float32{42}},
		},
	}
}

func write(t testing.TB, s *Shard) (dir string, m Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "model.ckpt-3", "ps_1")
	m, err := WriteShard(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range es {
		names = append(names, e.Name())
	}
	return names
}

func TestShardRoundTrip(t *testing.T) {
	s := small()
	dir, m := write(t, s)
	got, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := small()
	want.Tables["empty"] = nil
	want.Manifest = m
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m.Offsets[3] != 250 || m.SyncSeq != 88 || m.Turn != 6 || len(m.Files) != 4 || len(m.Hash) != 64 {
		t.Errorf("manifest %+v", m)
	}
	if !slices.Equal(files(t, dir), []string{"dense.tfrecord", "manifest.json", "table-00000.tfrecord", "table-00001.tfrecord", "table-00002.tfrecord"}) {
		t.Errorf("files %q", files(t, dir))
	}
	if names := files(t, filepath.Dir(dir)); len(names) != 1 {
		t.Errorf("beside the shard: %q", names)
	}
}

func TestTableHashIsTheLiveTables(t *testing.T) {
	spec := modelspec.MovieRanking()
	tab, err := modelspec.NewTable(spec, "user")
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Optimize([]int64{5, 3, 5}, make([]float32, 96), 9); err != nil {
		t.Fatal(err)
	}
	dir, m := write(t, &Shard{Tables: map[string][]table.Row{"user": tab.Snapshot()}})
	if m.Tables[0].Hash != tab.Hash() {
		t.Error("the manifest's hash is another one")
	}
	s, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := modelspec.NewTable(spec, "user")
	if err != nil {
		t.Fatal(err)
	}
	if err := twin.Restore(s.Tables["user"]); err != nil || twin.Hash() != tab.Hash() {
		t.Errorf("a restored table differs: %v", err)
	}
}

func TestHashIsOfTheParametersAlone(t *testing.T) {
	_, first := write(t, small())
	s := small()
	s.Manifest.Checkpoint, s.Manifest.SyncSeq, s.Manifest.Turn = 9, 9, 9
	slices.Reverse(s.Tables["user"])
	s.Tables["user"][0].Tag = 77
	if _, m := write(t, s); m.Hash != first.Hash {
		t.Error("equal parameters, other hash")
	}
	for what, change := range map[string]func(*Shard){
		"weight":        func(s *Shard) { s.Tables["user"][1].Values[0] += 1e-6 },
		"slot":          func(s *Shard) { s.Tables["user"][1].Slots[0] += 1e-6 },
		"row":           func(s *Shard) { s.Tables["user"] = s.Tables["user"][:1] },
		"variable":      func(s *Shard) { s.Dense["d/bias"].Values[0] = 1 },
		"variable slot": func(s *Shard) { s.Dense["d/kernel"].Slots[5] = 2 },
		"shape":         func(s *Shard) { v := s.Dense["d/kernel"]; v.Shape = []uint32{3, 2}; s.Dense["d/kernel"] = v },
	} {
		s := small()
		change(s)
		if _, m := write(t, s); m.Hash == first.Hash {
			t.Errorf("another %s, same hash", what)
		}
	}
}

func TestExportDropsSlots(t *testing.T) {
	s := small()
	dir, _ := write(t, Export(s))
	got, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Tables["user"] {
		if len(r.Slots) != 0 || len(r.Values) != 2 {
			t.Errorf("row %+v", r)
		}
	}
	if got.Tables["user"][0].Tag != 1<<63 || len(got.Dense["d/kernel"].Slots) != 0 || got.Dense["d/kernel"].Values[5] != 6 {
		t.Errorf("%+v", got)
	}
	if len(s.Tables["user"][0].Slots) != 2 || len(s.Dense["d/kernel"].Slots) != 6 {
		t.Error("Export changed its argument")
	}
}

// Large enough for several records per variable and a slot size of its own.
func TestLargeVariable(t *testing.T) {
	v := Variable{Shape: []uint32{3, varChunk}, Values: make([]float32, 3*varChunk), Slots: make([]float32, varChunk+1)}
	for i := range v.Values {
		v.Values[i] = float32(i)
	}
	v.Slots[varChunk] = 5
	dir, _ := write(t, &Shard{Dense: map[string]Variable{"w": v}})
	got, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, got.Dense["w"]); diff != "" {
		t.Error("a large variable differs")
	}
}

func TestWriteRefuses(t *testing.T) {
	for says, change := range map[string]func(*Shard){
		`id 1 twice`: func(s *Shard) {
			s.Tables["user"] = []table.Row{{ID: 1, Values: []float32{1}}, {ID: 1, Values: []float32{1}}}
		},
		`id 2 has 2 values`: func(s *Shard) {
			s.Tables["user"] = []table.Row{{ID: 1, Values: []float32{1}}, {ID: 2, Values: []float32{1, 2}}}
		},
		`id -9 has 1 slots`: func(s *Shard) {
			s.Tables["user"][0].Slots = s.Tables["user"][0].Slots[:1]
			s.Tables["user"][1].ID = -10
		},
		`no rows and no dim`:   func(s *Shard) { s.Tables["new"] = nil },
		`declared with dim 9`:  func(s *Shard) { s.Manifest.Tables = []TableInfo{{Name: "user", Dim: 9}} },
		`"d/bias" of shape [4`: func(s *Shard) { s.Dense["d/bias"] = Variable{Shape: []uint32{4}, Values: make([]float32, 3)} },
		`[65536 65536 65536 6`: func(s *Shard) { s.Dense["d/bias"] = Variable{Shape: []uint32{1 << 16, 1 << 16, 1 << 16, 1 << 16}} },
	} {
		dir := filepath.Join(t.TempDir(), "ps_0")
		s := small()
		change(s)
		if _, err := WriteShard(dir, s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
		if names := files(t, filepath.Dir(dir)); len(names) != 0 {
			t.Errorf("%s: left %q", says, names)
		}
	}
	if err := WriteEntry(filepath.Join(t.TempDir(), "1"), &Entry{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("entry without a spec: %v", err)
	}
	for _, dir := range []string{"", ".", "..", "/"} {
		if _, err := WriteShard(dir, small()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// flips checks that read fails for every changed byte, every cut and every missing file
// of dir, and names the file.
func flips(t *testing.T, dir string, read func() error) {
	t.Helper()
	if err := read(); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, dir) {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		try := func(what string, data []byte, want error) {
			t.Helper()
			if data == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := read(); !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		for i := range good {
			bad := slices.Clone(good)
			bad[i] ^= 1 << (i % 8)
			try(fmt.Sprintf("byte %d flipped", i), bad, ErrCorrupt)
			if i%31 == 0 {
				try(fmt.Sprintf("cut at %d", i), append([]byte{}, good[:i]...), ErrCorrupt)
			}
		}
		try("a byte more", append(slices.Clone(good), '\n'), ErrCorrupt)
		if len(good) > 0 { // an empty table's file is empty: nothing to flip
			try("twice", slices.Concat(good, good), ErrCorrupt)
		}
		try("missing", nil, fs.ErrNotExist)
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	dir, _ := write(t, small())
	flips(t, dir, func() error { _, err := ReadShard(dir); return err })
}

func TestEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "entry", "1700000000")
	want := &Entry{Spec: modelspec.MovieRanking(), Version: 1700000000, Job: "movies", Shards: 2, SyncSeq: 5, Dense: small().Dense}
	if err := WriteEntry(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadEntry(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	flips(t, dir, func() error { _, err := ReadEntry(dir); return err })
	if _, err := ReadShard(dir); err == nil {
		t.Error("an entry was read as a shard")
	}
}

func TestReplace(t *testing.T) {
	dir, first := write(t, small())
	s := small()
	s.Tables["user"][0].Values[0] = 99
	second, err := WriteShard(dir, s)
	if err != nil || second.Hash == first.Hash {
		t.Fatalf("%v", err)
	}
	if got, err := ReadShard(dir); err != nil || got.Manifest.Hash != second.Hash {
		t.Errorf("not replaced: %v", err)
	}
	if names := files(t, filepath.Dir(dir)); !slices.Equal(names, []string{"ps_1"}) {
		t.Errorf("left %q", names)
	}
}

// A crash at any stage leaves the old shard; what else it leaves, the next write removes.
func TestCrashWhileWriting(t *testing.T) {
	dir, first := write(t, small())
	broken := errors.New("no space left on device")
	err := replaceDir(dir, func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, ManifestName), []byte("half a man"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadShard(dir); err != nil || got.Manifest.Hash != first.Hash {
			t.Errorf("while writing: %v", err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if names := files(t, filepath.Dir(dir)); !slices.Equal(names, []string{"ps_1"}) {
		t.Errorf("a failed write left %q", names)
	}
	parent := filepath.Dir(dir)
	for _, name := range []string{".tmp-ps_1-123", ".tmp-ps_1-1230", ".tmp-ps_11-5", ".tmp-ps_1-x"} {
		if err := os.MkdirAll(filepath.Join(parent, name, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := WriteShard(dir, small()); err != nil {
		t.Fatal(err)
	}
	if names := files(t, parent); !slices.Equal(names, []string{".tmp-ps_1-x", ".tmp-ps_11-5", "ps_1"}) {
		t.Errorf("after the sweep: %q", names)
	}
	if v, err := Versions(parent); err != nil || len(v) != 0 {
		t.Errorf("versions %v, %v", v, err)
	}
}

func TestSwapWithoutTheSystemsHelp(t *testing.T) {
	parent := t.TempDir()
	a, b := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	for _, d := range []string{a, b} {
		if err := os.MkdirAll(filepath.Join(d, "was-"+filepath.Base(d)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range []func(a, b string) error{swap, exchange} {
		if err := f(a, b); err != nil {
			t.Fatal(err)
		}
		want := []string{"was-b", "was-a"}
		if i == 1 {
			slices.Reverse(want)
		}
		if files(t, a)[0] != want[0] || files(t, b)[0] != want[1] || len(files(t, parent)) != 2 {
			t.Errorf("%d: %q %q %q", i, files(t, a), files(t, b), files(t, parent))
		}
	}
	if err := swap(filepath.Join(parent, "none"), b); err == nil || files(t, b)[0] != "was-b" {
		t.Errorf("a failed swap: %v, %q", err, files(t, b))
	}
}

func TestParentIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteShard(filepath.Join(file, "deep", "ps_0"), small()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}

func TestVersionsAndSize(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"10", "9", "0", "-1", "007", "1x", ".tmp-10-5", "99999999999999999999"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(parent, "11"), []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(parent, "10", "f"), []byte("123"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err := Versions(parent); err != nil || !slices.Equal(v, []int64{0, 9, 10}) {
		t.Errorf("versions %v, %v", v, err)
	}
	if v, err := Versions(filepath.Join(parent, "none")); err != nil || len(v) != 0 {
		t.Errorf("versions of nothing %v, %v", v, err)
	}
	if n, err := DirSize(parent); err != nil || n != 8 {
		t.Errorf("size %d, %v", n, err)
	}
	if _, err := DirSize(filepath.Join(parent, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("size of nothing: %v", err)
	}
}

// The original's wire format: sfixed64 id, one tag per float, one dump per segment.
func TestRowBytes(t *testing.T) {
	dir, m := write(t, &Shard{Tables: map[string][]table.Row{"t": {{ID: 5, Values: []float32{1, -2}, Slots: []float32{.5, .5}, UnixSec: 300}}}})
	data, err := os.ReadFile(filepath.Join(dir, m.Tables[0].File))
	if err != nil {
		t.Fatal(err)
	}
	row, err := tfrecord.NewReader(bytes.NewReader(data), 0).Next()
	if err != nil {
		t.Fatal(err)
	}
	want := "09" + "0500000000000000" + // id
		"15" + "0000803f" + "15" + "000000c0" + // num
		"1a0e" + "0a0c" + "0a0a" + "0d0000003f" + "0d0000003f" + // opt.dump.adagrad.norm
		"20ac02" // last_update_ts_sec
	if got := hex.EncodeToString(row); got != want {
		t.Errorf("row is\n%s, want\n%s", got, want)
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, d := range []*monolithpb.EntryDump{
		dump(1, []float32{1, 2}, []float32{3, 4}), dump(-1, nil, nil), {},
		{Id: proto.Int64(1), LastUpdateTsSec: proto.Int64(-1)},
		{Id: proto.Int64(1), Opt: &monolithpb.OptimizerDump{Dump: []*monolithpb.SingleOptimizerDump{{Type: &monolithpb.SingleOptimizerDump_Ftrl{}}}}},
	} {
		data, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0x12, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}) // packed floats
	f.Fuzz(func(t *testing.T, data []byte) {
		row, err := decodeRow(data)
		if err != nil {
			return
		}
		info := TableInfo{Name: "t", Dim: len(row.Values), Rows: 1}
		var file bytes.Buffer
		if err := writeTable(tfrecord.NewWriter(&file), &info, []table.Row{row}); err != nil {
			t.Fatal(err)
		}
		got, err := allRows(tfrecord.NewReader(&file, 0), &info)
		if err != nil || len(got) != 1 || got[0].ID != row.ID || got[0].Tag != row.Tag || got[0].UnixSec != row.UnixSec || len(got[0].Slots) != len(row.Slots) {
			t.Fatalf("%+v came back as %+v, %v", row, got, err)
		}
	})
}

func TestForeignOptimizerIsNamed(t *testing.T) {
	data, err := proto.Marshal(&monolithpb.EntryDump{Id: proto.Int64(8), Opt: &monolithpb.OptimizerDump{Dump: []*monolithpb.SingleOptimizerDump{
		{Type: &monolithpb.SingleOptimizerDump_Ftrl{Ftrl: &monolithpb.FtrlOptimizerDump{}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRow(data); err == nil || !strings.Contains(err.Error(), "id 8") {
		t.Errorf("%v", err)
	}
}

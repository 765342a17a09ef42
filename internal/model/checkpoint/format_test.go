package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/monolith-go/monolith/internal/model/entrydump"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/monolithpb"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"

	"google.golang.org/protobuf/proto"
)

// TestFirstFormat reads what the first release of the format wrote, and writes the same
// bytes where nothing is to be said that it could not.
func TestFirstFormat(t *testing.T) {
	old := filepath.Join("testdata", "format1")
	s, err := ReadShard(old)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]table.Row{
		"adagrad": {{ID: -5, Values: []float32{1, -2}, Slots: []float32{0.1, 0.2}, UnixSec: 100, Tag: 8}, {ID: 1<<48 | 3, Values: []float32{0.5, 3}, Slots: []float32{0.3, 4}, UnixSec: 200}},
		"sgd":     {{ID: 1, Values: []float32{1, 2, 3}, UnixSec: 1}}, "empty": nil,
	}
	if diff := cmp.Diff(want, s.Tables); diff != "" || s.Manifest.Format != 1 {
		t.Errorf("format %d (-want +got):\n%s", s.Manifest.Format, diff)
	}
	if v := s.Dense["bias"]; !slices.Equal(v.Slots, []float32{3, 4}) {
		t.Errorf("bias is %+v", v)
	}
	dir, _ := write(t, s)
	for _, name := range files(t, old) {
		a, errA := os.ReadFile(filepath.Join(old, name))
		b, errB := os.ReadFile(filepath.Join(dir, name))
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s is written otherwise: %v, %v", name, errA, errB)
		}
	}
}

// complete is a shard of a table with three optimizers and a filter.
func complete(t testing.TB) (*Shard, table.Config) {
	t.Helper()
	adam, err := optim.NewAdam(optim.Adam{LearningRate: 0.1, Beta1: 0.9, Beta2: 0.99, Epsilon: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	adagrad, err := optim.NewAdagrad(0.1, 0.1, 0)
	if err != nil {
		t.Fatal(err)
	}
	dc, err := optim.NewDC(0.1, adagrad)
	if err != nil {
		t.Fatal(err)
	}
	wd, err := optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{LearningRate: 0.1, InitialAccumulator: 0.1, Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := table.Config{Name: "user", Segments: []table.Segment{
		{Dim: 2, Optimizer: adam, Initializer: table.Zeros{}}, {Dim: 3, Optimizer: dc, Initializer: table.Zeros{}}, {Dim: 1, Optimizer: wd, Initializer: table.Zeros{}},
	}}
	tab, err := table.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := tab.OptimizeAt([]int64{1, 2, 3 + int64(i)}, slices.Repeat([]float32{0.5, -1, 2}, 6), uint32(i), table.Rates{GlobalStep: 1 << 40}); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := entrydump.LayoutOf(cfg)
	return &Shard{
		Manifest: Manifest{Job: "j", Checkpoint: 1, Shards: 1, Tables: []TableInfo{
			{Name: "user", Dim: l.Dim, Slots: l.Slots, Opt: DumpsOf(l.Dumps), Clock: 77}, {Name: "other", Dim: 1},
		}},
		Tables:  map[string][]table.Row{"user": tab.Snapshot()},
		Filters: map[string][]byte{"user": slices.Repeat([]byte("state"), 500_000), "other": {}},
		Spec:    modelspec.MovieRanking(),
	}, cfg
}

func TestEverySlotComesBack(t *testing.T) {
	s, cfg := complete(t)
	dir, m := write(t, s)
	got, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Format != 2 || m.Tables[1].Clock != 77 || len(m.Filters) != 2 {
		t.Errorf("manifest %+v", m)
	}
	if diff := cmp.Diff(s.Tables["user"], got.Tables["user"]); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.Spec, got.Spec, protocmp.Transform()); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if string(got.Filters["user"]) != string(s.Filters["user"]) || len(got.Filters["other"]) != 0 {
		t.Error("filters come back otherwise")
	}
	hash, err := HashShard(s)
	if err != nil || hash != m.Hash {
		t.Errorf("HashShard %s, %v; the manifest says %s", hash, err, m.Hash)
	}
	// The file is the original's: its messages, each with its numbers.
	raw := records(t, filepath.Join(dir, m.Tables[1].File))
	var d monolithpb.EntryDump
	if err := proto.Unmarshal(raw[0], &d); err != nil {
		t.Fatal(err)
	}
	dumps := d.GetOpt().GetDump()
	if len(dumps) != 3 || len(dumps[0].GetAdam().GetV()) != 2 || len(dumps[1].GetAdagrad().GetNorm()) != 3 || dumps[2].GetDynamicWdAdagrad().GetLastUpdateStep() != 1<<40 || len(d.GetRest()) != 3 {
		t.Errorf("a row is written as %v", &d)
	}
	// And so a table of the original's kind reads it, too.
	if err := os.Rename(filepath.Join(dir, m.Tables[1].File), filepath.Join(dir, "t-00000-of-00001")); err != nil {
		t.Fatal(err)
	}
	tab, err := entrydump.Restore(filepath.Join(dir, "t"), cfg, entrydump.Reading{})
	if err != nil || tab.Hash() != m.Tables[1].Hash {
		t.Errorf("as a single-table set: %v", err)
	}
}

func TestFiltersCount(t *testing.T) {
	s, _ := complete(t)
	before, err := HashShard(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Filters["user"][9]++
	after, err := HashShard(s)
	if err != nil || after == before {
		t.Errorf("another filter state hashes to the same: %v", err)
	}
	e := Export(s)
	dir, m := write(t, e)
	if len(m.Filters) > 0 || m.Tables[1].Opt != nil || m.Tables[1].Clock != 0 {
		t.Errorf("an export has %+v", m)
	}
	if got, err := ReadShard(dir); err != nil || got.Spec == nil || len(got.Tables["user"][0].Slots) > 0 {
		t.Errorf("the export reads as %+v, %v", got, err)
	}
	if len(s.Manifest.Tables[0].Opt) == 0 {
		t.Error("Export has changed what it was made of")
	}
	s.Filters["nobody"] = []byte("x")
	if _, err := WriteShard(t.TempDir()+"/x", s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a filter of no table: %v", err)
	}
}

func TestDamagedFilter(t *testing.T) {
	s, _ := complete(t)
	dir, m := write(t, s)
	file := filepath.Join(dir, m.Filters[1].File)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"a bit": append(append(slices.Clone(whole[:5000]), whole[5000]^1), whole[5001:]...), "cut": whole[:len(whole)-1],
		"a record less": whole[:16+1<<20], "nothing": nil,
	} {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadShard(dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), m.Filters[1].File) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLayoutsThatDoNotFit(t *testing.T) {
	for name, change := range map[string]func(*Shard){
		"fewer slots":     func(s *Shard) { s.Manifest.Tables[0].Slots-- },
		"unknown kind":    func(s *Shard) { s.Manifest.Tables[0].Opt[0].Kind = "lion" },
		"a plane outside": func(s *Shard) { s.Manifest.Tables[0].Opt[0].Planes[0].To = 1 << 20 },
	} {
		s, _ := complete(t)
		change(s)
		if _, err := WriteShard(t.TempDir()+"/x", s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

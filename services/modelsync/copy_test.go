package modelsync

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/modelcopy/modelcopytest"
)

// copies opens a folder of copies below dir.
func copies(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := openDir(filepath.Join(dir, "copies"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestCopyModel(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	root := copies(t, dir)
	const place = "m/0/ps_0/1"
	src := modelcopytest.Shard(t, filepath.Join(dir, "export", "ps_0", "1"))
	modelcopytest.Write(t, filepath.Join(src, "assets", "vocab.txt"), "a\nb\n")
	if err := os.Symlink("vocab.txt", filepath.Join(src, "assets", "same.txt")); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(dir, "copies", place)
	c, err := copyModel(ctx, src, root, place)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := checkpoint.DirSize(dst); c.size != uint64(want) || c.size == 0 {
		t.Errorf("%d bytes, the copy has %d", c.size, want)
	}
	if export, err := sourceExport(src); err != nil || export != c.export || len(export) != 64 {
		t.Errorf("the copy is of export %q, the source is %q, %v", c.export, export, err)
	}
	s, err := checkpoint.ReadShard(dst)
	if err != nil || s.Dense["v"].Values[2] != 3 {
		t.Errorf("the copy reads as %v, %v", s, err)
	}
	for _, name := range []string{"vocab.txt", "same.txt"} {
		if text, err := os.ReadFile(filepath.Join(dst, "assets", name)); err != nil || string(text) != "a\nb\n" {
			t.Errorf("the asset %s is %q, %v", name, text, err)
		}
	}
	whole := func() bool { _, ok := found(ctx, root, place, nil); return ok }
	if got, ok := found(ctx, root, place, nil); !ok || got != c {
		t.Errorf("the copy is found as %v, %v; want %v", got, ok, c)
	}
	// What does not verify is replaced.
	for name := range s.Manifest.Files {
		modelcopytest.Write(t, filepath.Join(dst, name), "bit rot")
	}
	if whole() {
		t.Error("a damaged copy is whole")
	}
	if _, err := copyModel(ctx, src, root, place); err != nil || !whole() {
		t.Errorf("the damaged copy is not replaced: %v", err)
	}
	if left := modelcopytest.Leftovers(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The name of the folder of copies means nothing to a pattern.
func TestSweepListAndRemove(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "a[b*")
	root := copies(t, parent)
	dir := root.Name()
	modelcopytest.Write(t, filepath.Join(dir, "m", "0", "ps_0", "1", "f"), "x")
	modelcopytest.Write(t, filepath.Join(dir, "m", "0", "ps_0", "note"), "no version")
	modelcopytest.Write(t, filepath.Join(dir, "old", "ps_1", "7", "f"), "of a build that told no origins apart")
	modelcopytest.Write(t, filepath.Join(dir, "m", "0", "ps_0", modelcopy.Unfinished+"2-123", "f"), "half")
	modelcopytest.Write(t, filepath.Join(dir, "old", "ps_1", modelcopy.Unfinished+"gone-9", "1", "f"), "half gone")
	if err := modelcopy.Sweep(root, versionDepth); err != nil || len(modelcopytest.Leftovers(t, dir)) != 0 {
		t.Errorf("swept: %v, left %v", err, modelcopytest.Leftovers(t, dir))
	}
	got, err := list(root)
	want := []stored{{"m", "ps_0", "m/0/ps_0", 1}, {"old", "ps_1", "old/ps_1", 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("listed %v, %v; want %v", got, err, want)
	}
	if err := errors.Join(modelcopy.Remove(root, "m/0/ps_0/1"), modelcopy.Remove(root, "old/ps_1/7")); err != nil {
		t.Error(err)
	}
	prune(root)
	if left, err := os.ReadDir(filepath.Join(dir, "m", "0", "ps_0")); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folders without copies stay: %v", err)
	}
}

func TestTargetCheck(t *testing.T) {
	good := target{model: "m", sub: "ps_0", version: 1, source: "/export/ps_0/1"}
	for _, tc := range []struct {
		name   string
		change func(*target)
		ok     bool
	}{
		{"plain", func(*target) {}, true},
		{"model with a dot", func(x *target) { x.model = "a.b" }, true},
		{"no model", func(x *target) { x.model = "" }, false},
		{"parent", func(x *target) { x.model = ".." }, false},
		{"hidden", func(x *target) { x.sub = modelcopy.Unfinished + "x" }, false},
		{"path", func(x *target) { x.sub = "a/b" }, false},
		{"no version", func(x *target) { x.version = 0 }, false},
		{"relative source", func(x *target) { x.source = "export" }, false},
		{"source among the copies", func(x *target) { x.source = "/copies/m/ps_0/1" }, false},
		{"the copies themselves", func(x *target) { x.source = "/copies" }, false},
		{"beside the copies", func(x *target) { x.source = "/copies2/m" }, true},
	} {
		x := good
		tc.change(&x)
		if err := x.check("/copies"); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestWanted(t *testing.T) {
	p := plan.New()
	p.Plans["withdrawn"] = plan.Plan{Seq: 3}
	p.Plans["m"] = plan.Plan{PlannedSeq: 7, Planned: events.JSON[*publish.Planned]{V: &publish.Planned{ModelName: "m", ModelDir: "/d", Version: 4, Assignments: []*publish.Assignment{
		{Container: "b", SubModels: map[string]string{"ps_0": "/d/ps_0/4", "entry": "/d/entry/4"}},
		{Container: "a", SubModels: map[string]string{"ps_0": "/d/ps_0/4"}},
		{Container: "elsewhere", SubModels: map[string]string{"ps_1": "/d/ps_1/4"}},
	}}}}
	got := wanted(p, func(container string) bool { return container != "elsewhere" })
	want := []target{{"m", "entry", 4, "/d", "/d/entry/4", 7}, {"m", "ps_0", 4, "/d", "/d/ps_0/4", 7}}
	if !slices.Equal(got, want) {
		t.Errorf("wanted %v, want %v", got, want)
	}
	beside := p.Plans["m"]
	beside.Canary = plan.Canary{DeclaredSeq: 9, Declared: events.JSON[*publish.CanaryDeclared]{V: &publish.CanaryDeclared{Candidate: 6}}}
	p.Plans["m"] = beside
	got = wanted(p, func(container string) bool { return container != "elsewhere" })
	with := []target{want[0], {"m", "entry", 6, "/d", "/d/entry/6", 9}, want[1], {"m", "ps_0", 6, "/d", "/d/ps_0/6", 9}}
	if !slices.Equal(got, with) {
		t.Errorf("with a canary %v, want %v", got, with)
	}
	other := want[1]
	other.origin = "/e"
	if other.place() == want[1].place() || filepath.Dir(filepath.Dir(want[0].versionsDir())) != "m" || filepath.Dir(want[0].versionsDir()) != filepath.Dir(want[1].versionsDir()) {
		t.Errorf("places %s, %s and %s", want[0].place(), want[1].place(), other.place())
	}
}

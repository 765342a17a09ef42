package modelsync

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/projections/plan"
)

func shardDir(t *testing.T, dir string) string {
	t.Helper()
	s := &ckpt.Shard{Manifest: ckpt.Manifest{Job: "j", Checkpoint: 1, Shards: 1},
		Dense: map[string]ckpt.Variable{"v": {Shape: []uint32{3}, Values: []float32{1, 2, 3}}}}
	if _, err := ckpt.WriteShard(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// leftovers are unfinished folders anywhere below dir.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), unfinished) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCopyModel(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	src := shardDir(t, filepath.Join(dir, "export", "ps_0", "1"))
	write(t, filepath.Join(src, "assets", "vocab.txt"), "a\nb\n")
	dst := filepath.Join(dir, "copies", "m", "ps_0", "1")
	n, err := copyModel(ctx, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := ckpt.DirSize(src); n != uint64(want) || n == 0 {
		t.Errorf("%d bytes, the source has %d", n, want)
	}
	s, err := ckpt.ReadShard(dst)
	if err != nil || s.Dense["v"].Values[2] != 3 {
		t.Errorf("the copy reads as %v, %v", s, err)
	}
	if text, err := os.ReadFile(filepath.Join(dst, "assets", "vocab.txt")); err != nil || string(text) != "a\nb\n" {
		t.Errorf("the asset is %q, %v", text, err)
	}
	if !whole(ctx, dst) {
		t.Error("the copy is not whole")
	}
	// What does not verify is replaced.
	for name := range s.Manifest.Files {
		write(t, filepath.Join(dst, name), "bit rot")
	}
	if whole(ctx, dst) {
		t.Error("a damaged copy is whole")
	}
	if _, err := copyModel(ctx, src, dst); err != nil || !whole(ctx, dst) {
		t.Errorf("the damaged copy is not replaced: %v", err)
	}
	if left := leftovers(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCopyModelRefuses(t *testing.T) {
	dir := t.TempDir()
	damaged := shardDir(t, filepath.Join(dir, "damaged"))
	m, err := ckpt.ReadManifest(damaged)
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Files {
		write(t, filepath.Join(damaged, name), "bit rot")
	}
	missing := shardDir(t, filepath.Join(dir, "missing"))
	for name := range m.Files {
		if err := os.Remove(filepath.Join(missing, name)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(dir, "outside")
	write(t, filepath.Join(outside, manifestName), `{"files":{"../secret":1}}`)
	cut := filepath.Join(dir, "cut")
	write(t, filepath.Join(cut, manifestName), `{"files":{"a":`)
	write(t, filepath.Join(dir, "file"), "")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name, src string
		ctx       context.Context
		says      string
	}{
		{"gone", filepath.Join(dir, "gone"), t.Context(), "cannot be read"},
		{"a file", filepath.Join(dir, "file"), t.Context(), "is no folder"},
		{"damaged", damaged, t.Context(), "has checksum"},
		{"incomplete", missing, t.Context(), "no such file"},
		{"a manifest that points outside", outside, t.Context(), "not in the folder"},
		{"a manifest cut short", cut, t.Context(), "unexpected EOF"},
		{"stopped", shardDir(t, filepath.Join(dir, "good")), stopped, "context canceled"},
	} {
		dst := filepath.Join(dir, "copies", "m", "ps_0", "1")
		_, err := copyModel(tc.ctx, tc.src, dst)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want an error that says %q", tc.name, err, tc.says)
		}
		if _, err := os.Stat(dst); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something lies at the destination", tc.name)
		}
	}
	if left := leftovers(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSweepAndRemove(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "m", "ps_0", "1", "f"), "x")
	write(t, filepath.Join(dir, "m", "ps_0", unfinished+"2-123", "f"), "half")
	write(t, filepath.Join(dir, "m", "ps_0", unfinished+"gone-9", "1", "f"), "half gone")
	if err := sweep(dir); err != nil || len(leftovers(t, dir)) != 0 {
		t.Errorf("swept: %v, left %v", err, leftovers(t, dir))
	}
	if _, err := os.Stat(filepath.Join(dir, "m", "ps_0", "1", "f")); err != nil {
		t.Error(err)
	}
	if err := remove(filepath.Join(dir, "m", "ps_0", "1")); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "m", "ps_0"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
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
		{"hidden", func(x *target) { x.sub = unfinished + "x" }, false},
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

func TestWantedAndObsolete(t *testing.T) {
	p := plan.New()
	p.Plans["withdrawn"] = plan.Plan{Seq: 3}
	p.Plans["m"] = plan.Plan{PlannedSeq: 7, Planned: events.JSON[*publish.Planned]{V: &publish.Planned{ModelName: "m", Version: 4, Assignments: []*publish.Assignment{
		{Container: "b", SubModels: map[string]string{"ps_0": "/d/ps_0/4", "entry": "/d/entry/4"}},
		{Container: "a", SubModels: map[string]string{"ps_0": "/d/ps_0/4"}},
	}}}}
	got := wanted(p)
	want := []target{{"m", "entry", 4, "/d/entry/4", 7}, {"m", "ps_0", 4, "/d/ps_0/4", 7}}
	if !slices.Equal(got, want) {
		t.Errorf("wanted %v, want %v", got, want)
	}
	for _, tc := range []struct {
		disk, named, want []int64
	}{
		{nil, nil, nil},
		{[]int64{1}, []int64{1}, nil},
		{[]int64{1, 2}, []int64{2}, nil},
		{[]int64{1, 2, 3}, []int64{3}, []int64{1}},
		{[]int64{9, 10, 11, 2}, []int64{11}, []int64{2, 9}},
		{[]int64{1, 2, 3}, []int64{1}, []int64{2}}, // back to an older version
		{[]int64{1, 2}, nil, []int64{1}},
	} {
		named := map[int64]bool{}
		for _, v := range tc.named {
			named[v] = true
		}
		if got := obsolete(tc.disk, named); !slices.Equal(got, tc.want) {
			t.Errorf("of %v, named %v: %v may go, want %v", tc.disk, tc.named, got, tc.want)
		}
	}
}

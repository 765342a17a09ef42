package modelcopy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

func shardDir(t *testing.T, dir string) string {
	t.Helper()
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Checkpoint: 1, Shards: 1},
		Dense: map[string]checkpoint.Variable{"v": {Shape: []uint32{3}, Values: []float32{1, 2, 3}}}}
	if _, err := checkpoint.WriteShard(dir, s); err != nil {
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
		if strings.HasPrefix(filepath.Base(path), Unfinished) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStageRefuses(t *testing.T) {
	dir := t.TempDir()
	damaged := shardDir(t, filepath.Join(dir, "damaged"))
	m, err := checkpoint.ReadManifest(damaged)
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
	write(t, filepath.Join(outside, checkpoint.ManifestName), `{"files":{"../secret":1}}`)
	cut := filepath.Join(dir, "cut")
	write(t, filepath.Join(cut, checkpoint.ManifestName), `{"files":{"a":`)
	write(t, filepath.Join(dir, "file"), "")
	if err := os.Mkdir(filepath.Join(dir, "copies"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "copies"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	linked := func(name, target string) string {
		src := shardDir(t, filepath.Join(dir, name))
		if err := os.Symlink(target, filepath.Join(src, "link")); err != nil {
			t.Fatal(err)
		}
		return src
	}
	deep := shardDir(t, filepath.Join(dir, "deep"))
	write(t, filepath.Join(deep, strings.Repeat("d/", maxDepth+1), "f"), "")
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name, src string
		ctx       context.Context
		says      string
	}{
		{"gone", filepath.Join(dir, "gone"), t.Context(), "cannot be read"},
		{"a file", filepath.Join(dir, "file"), t.Context(), "not a directory"},
		{"damaged", damaged, t.Context(), "has checksum"},
		{"incomplete", missing, t.Context(), "no such file"},
		{"a manifest that points outside", outside, t.Context(), "not in the folder"},
		{"a manifest cut short", cut, t.Context(), "unexpected end of JSON input"},
		{"a link out of the folder", linked("escape", "../../secret"), t.Context(), "escapes"},
		{"an absolute link", linked("absolute", filepath.Join(dir, "file")), t.Context(), "escapes"},
		{"a link to a folder", linked("loop", "."), t.Context(), "is a link to a folder"},
		{"folders without end", deep, t.Context(), "folders deep"},
		{"stopped", shardDir(t, filepath.Join(dir, "good")), stopped, "context canceled"},
	} {
		dst := filepath.Join(dir, "copies", "m", "0", "ps_0", "1")
		_, err := Stage(tc.ctx, tc.src, root, "m/0/ps_0/1")
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

// What lies at a place goes once another folder is there, and stays where none can be.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	lies := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(dir, "m", "1", "f")); err != nil || string(text) != want {
			t.Errorf("at its place is %q, %v; want %q", text, err, want)
		}
		if left := leftovers(t, dir); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	for _, text := range []string{"first", "second"} {
		write(t, filepath.Join(dir, "m", Unfinished+"1", "f"), text)
		if err := Install(root, "m/"+Unfinished+"1", "m/1"); err != nil {
			t.Fatal(err)
		}
		lies(text)
	}
	if err := Install(root, "m/"+Unfinished+"gone", "m/1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is gone is installed: %v", err)
	}
	lies("second")
	if err := Install(root, "m/"+Unfinished+"gone", "m/2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is gone is installed where nothing lies: %v", err)
	}
	lies("second")
}

package modelcopy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/modelcopy/modelcopytest"
)

func TestStageRefuses(t *testing.T) {
	dir := t.TempDir()
	damaged := modelcopytest.Shard(t, filepath.Join(dir, "damaged"))
	m, err := checkpoint.ReadManifest(damaged)
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Files {
		modelcopytest.Write(t, filepath.Join(damaged, name), "bit rot")
	}
	missing := modelcopytest.Shard(t, filepath.Join(dir, "missing"))
	for name := range m.Files {
		if err := os.Remove(filepath.Join(missing, name)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(dir, "outside")
	modelcopytest.Write(t, filepath.Join(outside, checkpoint.ManifestName), `{"files":{"../secret":1}}`)
	cut := filepath.Join(dir, "cut")
	modelcopytest.Write(t, filepath.Join(cut, checkpoint.ManifestName), `{"files":{"a":`)
	modelcopytest.Write(t, filepath.Join(dir, "file"), "")
	if err := os.Mkdir(filepath.Join(dir, "copies"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(filepath.Join(dir, "copies"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	linked := func(name, target string) string {
		src := modelcopytest.Shard(t, filepath.Join(dir, name))
		if err := os.Symlink(target, filepath.Join(src, "link")); err != nil {
			t.Fatal(err)
		}
		return src
	}
	deep := modelcopytest.Shard(t, filepath.Join(dir, "deep"))
	modelcopytest.Write(t, filepath.Join(deep, strings.Repeat("d/", modelcopy.MaxDepth+1), "f"), "")
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
		{"stopped", modelcopytest.Shard(t, filepath.Join(dir, "good")), stopped, "context canceled"},
	} {
		dst := filepath.Join(dir, "copies", "m", "0", "ps_0", "1")
		_, err := modelcopy.Stage(tc.ctx, tc.src, root, "m/0/ps_0/1")
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want an error that says %q", tc.name, err, tc.says)
		}
		if _, err := os.Stat(dst); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something lies at the destination", tc.name)
		}
	}
	if left := modelcopytest.Leftovers(t, dir); len(left) != 0 {
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
		if left := modelcopytest.Leftovers(t, dir); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	for _, text := range []string{"first", "second"} {
		modelcopytest.Write(t, filepath.Join(dir, "m", modelcopy.Unfinished+"1", "f"), text)
		if err := modelcopy.Install(root, "m/"+modelcopy.Unfinished+"1", "m/1"); err != nil {
			t.Fatal(err)
		}
		lies(text)
	}
	if err := modelcopy.Install(root, "m/"+modelcopy.Unfinished+"gone", "m/1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is gone is installed: %v", err)
	}
	lies("second")
	if err := modelcopy.Install(root, "m/"+modelcopy.Unfinished+"gone", "m/2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is gone is installed where nothing lies: %v", err)
	}
	lies("second")
}

package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestInspect counts what lies in a folder, and finds every byte that differs and every file that is gone.
func TestInspect(t *testing.T) {
	dir, m := write(t, small())
	size, err := DirSize(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rows uint64
	for _, info := range m.Tables {
		rows += info.Rows
	}
	for _, deep := range []bool{false, true} {
		got, err := InspectIn(t.Context(), filepath.Dir(dir), filepath.Base(dir), deep)
		if err != nil || got.Bytes != uint64(size) || got.Rows != rows || rows == 0 || got.Manifest.Hash != m.Hash {
			t.Errorf("deep %t: %d bytes, %d rows, hash %s, %v; there are %d and %d, %s", deep, got.Bytes, got.Rows, got.Manifest.Hash, err, size, rows, m.Hash)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := InspectIn(ended, dir, ".", true); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
	for name := range m.Files {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole { // a bit anywhere
			whole[at] ^= 4
			if err := os.WriteFile(path, whole, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := InspectIn(t.Context(), dir, ".", true); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d of %s changed: %v", at, name, err)
			}
			whole[at] ^= 4
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := InspectIn(t.Context(), dir, ".", false); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What was written is known by its manifest and its size, and by neither where the manifest cannot be read.
func TestWritten(t *testing.T) {
	dir, _ := write(t, small())
	text, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := DirSize(dir)
	if err != nil {
		t.Fatal(err)
	}
	if identity, size, err := Written(dir); err != nil || identity != IdentityOf(text) || identity == "" || size != uint64(bytes) || size <= uint64(len(text)) {
		t.Errorf("written %q of %d bytes, %v; want %q of %d", identity, size, err, IdentityOf(text), bytes)
	}
	if identity, size, err := Written(filepath.Join(dir, ManifestName)); err == nil || identity != "" || size != 0 {
		t.Errorf("of what is no folder: %q of %d bytes, %v", identity, size, err)
	}
}

// TestPathsStayInside: no path that a fact names, no link on it and no link in the folder
// makes anybody read outside.
func TestPathsStayInside(t *testing.T) {
	outside, _ := write(t, small())
	base := t.TempDir()
	inside := filepath.Join(base, "model.ckpt-1", "ps_0")
	if _, err := WriteShard(inside, small()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	away, err := filepath.Rel(base, outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{away, outside, "link", "model.ckpt-1/../link", "../" + filepath.Base(base) + "/model.ckpt-1/ps_0", ""} {
		if _, err := ReadShardIn(base, path); err == nil {
			t.Errorf("a shard was read at %q", path)
		}
		if _, err := InspectIn(t.Context(), base, path, false); err == nil {
			t.Errorf("a shard was looked at at %q", path)
		}
	}
	if _, err := ReadShardIn(base, "model.ckpt-1/ps_0"); err != nil {
		t.Errorf("the path that is right: %v", err)
	}
	// A file of the folder that is a link to another's, same bytes or not.
	if err := os.Remove(filepath.Join(inside, denseName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, denseName), filepath.Join(inside, denseName)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadShard(inside); err == nil {
		t.Error("a file outside was read through a link")
	}
}

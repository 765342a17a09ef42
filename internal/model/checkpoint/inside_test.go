package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadDense reads the variables alone: without the files of rows, which may be larger
// than the memory of who asks.
func TestReadDense(t *testing.T) {
	dir, m := write(t, small())
	want, err := ReadShard(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range m.Tables {
		if err := os.Remove(filepath.Join(dir, info.File)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadDenseIn(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Dense, got.Dense); diff != "" || got.Manifest.Hash != m.Hash {
		t.Errorf("hash %s, want %s (-want +got):\n%s", got.Manifest.Hash, m.Hash, diff)
	}
	whole, err := os.ReadFile(filepath.Join(dir, denseName))
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole { // a bit anywhere
		whole[at] ^= 4
		if err := os.WriteFile(filepath.Join(dir, denseName), whole, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDenseIn(dir, "."); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d changed: %v", at, err)
		}
		whole[at] ^= 4
	}
	if err := os.Remove(filepath.Join(dir, denseName)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDenseIn(dir, "."); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
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
		if _, err := ReadDenseIn(base, path); err == nil {
			t.Errorf("variables were read at %q", path)
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

package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveAll deletes a folder, one that a crash has left hidden, and nothing beside them.
func TestRemoveAll(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"a/deep", "a/b/deep", ".deleted-c/half", "kept"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a/b", "a", "c", "never"} {
		if err := RemoveAll(root, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveAll(root, "out/side"); err == nil {
		t.Error("what a link leads to outside is deleted")
	}
}

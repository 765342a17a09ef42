package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/durable"
)

func TestSyncDir(t *testing.T) {
	if err := durable.SyncDir(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestMkdirAll(t *testing.T) {
	base := t.TempDir()
	deep := filepath.Join(base, "a", "b", "c")
	for range 2 { // the second time it is there
		if err := durable.MkdirAll(deep, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(deep); err != nil || !st.IsDir() || st.Mode().Perm()&^0o750 != 0 {
		t.Errorf("made: %v, %v", st, err)
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if err := durable.MkdirAll(dir, 0o750); err == nil {
			t.Errorf("%s was made, though a file is there", dir)
		}
	}
}

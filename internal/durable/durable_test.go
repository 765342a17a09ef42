package durable_test

import (
	"errors"
	"io/fs"
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

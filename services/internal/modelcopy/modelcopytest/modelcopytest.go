// Package modelcopytest has what tests of copies put into folders and look for there.
package modelcopytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
)

// Shard writes a small shard into dir, which it returns.
func Shard(t testing.TB, dir string) string {
	t.Helper()
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Checkpoint: 1, Shards: 1},
		Dense: map[string]checkpoint.Variable{"v": {Shape: []uint32{3}, Values: []float32{1, 2, 3}}}}
	if _, err := checkpoint.WriteShard(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Write writes a file, and the folders above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Leftovers are unfinished folders anywhere below dir.
func Leftovers(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), modelcopy.Unfinished) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolders: a part is read from whichever folder has it whole and as it is wanted; one that is nowhere is told with
// where it was looked for.
func TestFolders(t *testing.T) {
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(dir, path string, step uint64) {
		t.Helper()
		if _, err := CreateShard(filepath.Join(dir, path), &Shard{Manifest: Manifest{Job: "j", Shards: 1, Checkpoint: 1, Step: step}}); err != nil {
			t.Fatal(err)
		}
	}
	const part = "model.ckpt-1/ps_0"
	write(first, part, 1)
	write(second, part, 2)
	write(third, "model.ckpt-1/ps_1", 3)
	all := Folders{second, third}.Beside(first)
	step := func(path string, fits func(*Shard) error) uint64 {
		t.Helper()
		s, err := all.ReadShard(path, fits)
		if err != nil {
			t.Fatal(err)
		}
		return s.Manifest.Step
	}
	if got := step(part, nil); got != 1 {
		t.Errorf("the first folder's is %d", got)
	}
	if got := step("model.ckpt-1/ps_1", nil); got != 3 {
		t.Errorf("of the third folder: %d", got)
	}
	other := errors.New("another attempt")
	second2 := func(s *Shard) error {
		if s.Manifest.Step != 2 {
			return other
		}
		return nil
	}
	if got := step(part, second2); got != 2 {
		t.Errorf("that fits: %d", got)
	}
	if err := os.WriteFile(filepath.Join(first, part, ManifestName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := step(part, nil); got != 2 {
		t.Errorf("beside a damaged one: %d", got)
	}
	if _, err := all.ReadShard(part, func(*Shard) error { return other }); !errors.Is(err, other) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none fits: %v", err)
	}
	if dir, err := all.Of("model.ckpt-1/ps_1"); err != nil || dir != third {
		t.Errorf("it lies in %s, %v", dir, err)
	}
	for _, err := range []error{func() error { _, err := all.ReadShard("model.ckpt-2/ps_0", nil); return err }(), func() error { _, err := all.Of("model.ckpt-2/ps_0"); return err }()} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), third) || !strings.Contains(err.Error(), "--parts") {
			t.Errorf("what is nowhere: %v", err)
		}
	}
}

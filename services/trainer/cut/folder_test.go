package cut

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// An export is gone once all of its parts are.
func TestAnExportIsGoneWhole(t *testing.T) {
	dir := t.TempDir()
	f := Folder{Dir: dir, Shards: 1, Log: slog.New(slog.DiscardHandler)}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	part := func(sub string) string { return filepath.Join(dir, ExportsDir, sub, "7") }
	for _, sub := range []string{"entry", "ps_0"} {
		if err := os.MkdirAll(filepath.Join(part(sub), "deep"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !f.removeExport(root, subModels(1), 7) {
		t.Error("it is gone, and that is not said")
	}
	if !f.removeExport(root, subModels(1), 7) {
		t.Error("what is gone is not gone")
	}
	for _, sub := range []string{"entry", "ps_0"} {
		if _, err := os.Stat(part(sub)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", sub, err)
		}
		left, err := os.ReadDir(filepath.Dir(part(sub)))
		if err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", sub, left, err)
		}
	}
	// One part that stays is enough, whichever.
	for _, stuck := range []string{"entry", "ps_0"} {
		for _, sub := range []string{"entry", "ps_0"} {
			if err := os.MkdirAll(part(sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		away, err := filepath.Rel(filepath.Join(dir, ExportsDir), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, ExportsDir, stuck)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(away, filepath.Join(dir, ExportsDir, stuck)); err != nil { // leads out of the folder
			t.Fatal(err)
		}
		if f.removeExport(root, subModels(1), 7) {
			t.Errorf("%s stays, and the export is said to be gone", stuck)
		}
		if err := os.Remove(filepath.Join(dir, ExportsDir, stuck)); err != nil {
			t.Fatal(err)
		}
	}
}

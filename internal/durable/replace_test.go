package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/durable"
)

// content is the only file of a folder, and its mode.
func content(t *testing.T, path string) (string, os.FileMode) {
	t.Helper()
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 || files[0].Name() != filepath.Base(path) {
		t.Fatalf("the folder holds %v, %v", files, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := files[0].Info()
	if err != nil {
		t.Fatal(err)
	}
	return string(data), info.Mode()
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	text := func(s string) func(*os.File) error {
		return func(f *os.File) error { _, err := f.WriteString(s); return err }
	}
	if err := durable.Replace(path, 0o644, text("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := durable.Replace(path, 0o600, func(f *os.File) error { return errors.Join(text("half")(f), full) }); !errors.Is(err, full) {
		t.Error(err)
	}
	if got, mode := content(t, path); got != "old" || mode != 0o644 {
		t.Errorf("after what failed: %q, %v", got, mode)
	}
	if err := durable.Replace(path, 0o600, text("new")); err != nil {
		t.Fatal(err)
	}
	if got, mode := content(t, path); got != "new" || mode != 0o600 {
		t.Errorf("%q, %v", got, mode)
	}
	if err := durable.Swap(path, 0o644, []byte("swapped")); err != nil {
		t.Fatal(err)
	}
	if got, mode := content(t, path); got != "swapped" || mode != 0o644 {
		t.Errorf("%q, %v", got, mode)
	}
}

// What cannot take its place is an error, and leaves nothing behind.
func TestReplaceWhereAFolderStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Replace": durable.Replace(path, 0o600, func(*os.File) error { return nil }),
		"Swap":    durable.Swap(path, 0o600, nil),
	} {
		if err == nil {
			t.Errorf("%s: a folder was replaced by a file", name)
		}
	}
	if left, err := filepath.Glob(path + ".tmp*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	gone := filepath.Join(t.TempDir(), "gone", "f")
	if err := durable.Swap(gone, 0o600, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

func TestSweepSparesFreshFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.[1].gz") // no pattern
	now := time.Now()
	for name, age := range map[string]time.Duration{".tmp1": 2 * time.Hour, ".tmp2": time.Minute, "": 2 * time.Hour, ".other": 2 * time.Hour} {
		if err := os.WriteFile(path+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path+name, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Sweep(path, now); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	var left []string
	for _, f := range files {
		left = append(left, strings.TrimPrefix(f.Name(), filepath.Base(path)))
	}
	if got := strings.Join(left, " "); err != nil || got != " .other .tmp2" {
		t.Errorf("left: %q, %v", got, err)
	}
	if err := durable.Sweep(filepath.Join(t.TempDir(), "not", "there"), now); err != nil {
		t.Error(err)
	}
}

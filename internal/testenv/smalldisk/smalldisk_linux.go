// Package smalldisk gives tests disks that are soon full.
package smalldisk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount makes dir a disk of its own that holds size bytes, as tmpfs writes them ("32m"), and no more, until the
// test ends. Without root the test skips; as root, CI=true makes it fail.
func Mount(t testing.TB, dir, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("mount a small disk: %v", err)
		}
		t.Skipf("SKIPPED, a small disk cannot be mounted (that takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Fill leaves no byte free in dir and returns how to free them again.
func Fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if cerr := f.Close(); !errors.Is(err, unix.ENOSPC) || cerr != nil {
		t.Fatalf("filling the disk: %v, %v", err, cerr)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/powercut"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/internal/vfs/vfstest"
)

// A copy that has returned is there after a cut, also where a name is on disk after a sync of its folder alone.
func TestPowerCut(t *testing.T) {
	for name, policy := range map[string]powercut.Policy{"journal": powercut.Journal, "strict": powercut.Strict} {
		t.Run(name, func(t *testing.T) {
			mount, disk := powercut.ForTest(t, policy)
			cut := func() {
				t.Helper()
				if err := disk.Cut(powercut.Nothing, nil, func() {}, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			is := func(want string, path ...string) {
				t.Helper()
				if got, err := vfs.ReadText(t.Context(), filepath.Join(path...), 100); err != nil || string(got) != want {
					t.Errorf("%s after the cut: %q, %v", filepath.Join(path...), got, err)
				}
			}
			from := t.TempDir()
			vfstest.Write(t, filepath.Join(from, "top"), "1")
			below := filepath.Join(from, "a", "b")
			if err := mkdirAll(below); err != nil {
				t.Fatal(err)
			}
			vfstest.Write(t, filepath.Join(below, "deep"), "2")
			to := filepath.Join(mount, "some", "where", "tree")
			for range 2 { // the second replaces
				if err := vfs.CopyTree(t.Context(), from, to, vfs.Copying{Workers: 2, Strict: true}); err != nil {
					t.Fatal(err)
				}
				cut()
				is("1", to, "top")
				is("2", to, "a", "b", "deep")
			}
			if err := vfs.CopyFile(t.Context(), filepath.Join(below, "deep"), filepath.Join(to, "top"), vfs.Copying{Strict: true}); err != nil {
				t.Fatal(err)
			}
			cut()
			is("2", to, "top")
		})
	}
}

func mkdirAll(path string) error {
	at, err := vfs.For(path)
	if err != nil {
		return err
	}
	return at.MkdirAll(path)
}

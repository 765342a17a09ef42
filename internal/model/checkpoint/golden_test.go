package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

// TestLaterFormats reads what releases of the later formats wrote, and writes the same
// bytes. UPDATE=1 makes the golden files of a format that has none yet.
func TestLaterFormats(t *testing.T) {
	for name, change := range map[string]func(*Shard){
		"format2": func(*Shard) {},
		"format3": func(s *Shard) { s.Manifest.Assigned = []string{"a", "b \"2\" ü"} },
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := complete(t)
			want.Filters["user"] = []byte("state")
			change(want)
			golden := filepath.Join("testdata", name)
			if _, err := os.Stat(golden); errors.Is(err, fs.ErrNotExist) && os.Getenv("UPDATE") != "" {
				if _, err := CreateShard(golden, want); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ReadShard(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Tables["user"], got.Tables["user"]); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Spec, got.Spec, protocmp.Transform()); diff != "" || string(got.Filters["user"]) != "state" {
				t.Errorf("filter %q, spec (-want +got):\n%s", got.Filters["user"], diff)
			}
			if diff := cmp.Diff(want.Manifest.Assigned, got.Manifest.Assigned); diff != "" || "format"+string(rune('0'+got.Manifest.Format)) != name {
				t.Errorf("format %d, assigned (-want +got):\n%s", got.Manifest.Format, diff)
			}
			if e := Export(got); len(e.Manifest.Assigned) != 0 {
				t.Errorf("an export names assignments: %q", e.Manifest.Assigned)
			}
			dir, _ := write(t, got)
			for _, name := range files(t, golden) {
				a, errA := os.ReadFile(filepath.Join(golden, name))
				b, errB := os.ReadFile(filepath.Join(dir, name))
				if errA != nil || errB != nil || string(a) != string(b) {
					t.Errorf("%s is written otherwise: %v, %v", name, errA, errB)
				}
			}
		})
	}
}

// TestCreateShard: what is there stays, also what comes to be there while the files are
// written, as when a paused process wakes behind its successor.
func TestCreateShard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model.ckpt-5", "ps_1")
	first, err := CreateShard(dir, small())
	if err != nil {
		t.Fatal(err)
	}
	other := small()
	other.Tables["user"][0].Values[0] = 99
	if _, err := CreateShard(dir, other); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a shard: %v, want fs.ErrExist", err)
	}
	late := filepath.Join(filepath.Dir(dir), "ps_2")
	for name, rename := range map[string]func(from, to string) error{"the system's": renameNew, "without one": renameOver} {
		t.Run(name, func(t *testing.T) {
			defer os.RemoveAll(late)
			err := putDir(late, func(string) error {
				return os.CopyFS(late, os.DirFS(dir)) // the successor's
			}, rename)
			if !errors.Is(err, fs.ErrExist) {
				t.Errorf("%v, want fs.ErrExist", err)
			}
			if got, err := ReadShard(late); err != nil || got.Manifest.Hash != first.Hash {
				t.Errorf("the successor's shard: %v", err)
			}
		})
	}
	if got, err := ReadShard(dir); err != nil || got.Manifest.Hash != first.Hash {
		t.Errorf("the first one: %v", err)
	}
	if names := files(t, filepath.Dir(dir)); len(names) != 1 {
		t.Errorf("left %q", names)
	}
}

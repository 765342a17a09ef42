package follow

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A snapshot is of use to the view, the namespace and the fold version that it was taken of.
func TestSnapshotIsOfOneView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	own := mark{View: "v", BZID: "demo", Version: 2}
	if err := writeSnapshot(path, own, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readSnapshot(path, own); err != nil {
		t.Fatal(err)
	}
	for _, want := range []mark{{View: "w", BZID: "demo", Version: 2}, {View: "v", BZID: "other", Version: 2}, {View: "v", BZID: "demo", Version: 3}} {
		if _, _, err := readSnapshot(path, want); !errors.Is(err, errStale) {
			t.Errorf("%+v takes the snapshot of %+v: %v", want, own, err)
		}
	}
}

// A snapshot that cannot take its place is an error, and leaves nothing behind.
func TestReplaceRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(path, mark{}, []byte("{}")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if left, err := filepath.Glob(path + ".tmp*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A file that is read is one that was written.
func FuzzReadSnapshot(f *testing.F) {
	want := mark{View: "v", Version: 1}
	dir := f.TempDir()
	path := filepath.Join(dir, "seed")
	m := want
	m.Seq, m.ID = 7, "id"
	if err := writeSnapshot(path, m, []byte(`{"a":1}`)); err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-1])
	f.Add([]byte{0x1f, 0x8b})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		m, state, err := readSnapshot(path, want)
		if err != nil {
			return
		}
		if err := writeSnapshot(path, m, state); err != nil {
			t.Fatal(err)
		}
		m2, state2, err := readSnapshot(path, want)
		if err != nil || m2.Seq != m.Seq || m2.ID != m.ID || !bytes.Equal(state, state2) {
			t.Fatalf("%+v %q came back as %+v %q, %v", m, state, m2, state2, err)
		}
	})
}

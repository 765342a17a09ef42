package follow

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSweepSparesFreshFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.snapshot.gz")
	now := time.Now()
	for name, age := range map[string]time.Duration{".tmp1": 2 * time.Hour, ".tmp2": time.Minute, "": 2 * time.Hour} {
		if err := os.WriteFile(path+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path+name, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweep(path, now); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 2 || left[0] != path || left[1] != path+".tmp2" {
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

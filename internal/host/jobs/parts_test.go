package jobs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPartsOnSeveralDisks: a checkpoint whose parts lie on several disks is exported and evaluated where all are named; of
// one that is not, it is said which part is missing.
func TestPartsOnSeveralDisks(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", ratings(1, 300))
	r.train("", "--files", "a.json", "--shards", "2", "--batch", "50")
	found, err := filepath.Glob("job/training/*/model.ckpt-*/ps_1")
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, path := range found {
		to := filepath.Join("disk", filepath.Base(filepath.Dir(path)))
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, filepath.Join(to, "ps_1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.exported("--dir", "job", "--to", "out"); err == nil || !strings.Contains(err.Error(), "/ps_1 lies in none of") {
		t.Errorf("without the disk: %v", err)
	}
	if x, err := r.exported("--dir", "job", "--to", "whole", "--parts", "nowhere", "--parts", "disk"); err != nil || x.Rows != 70 {
		t.Errorf("%+v, %v", x, err)
	}
	s, err := (&Place{Dir: "job", BZID: "demo", Parts: []string{"disk"}}).find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.load(t.Context()); err != nil || p.size() != 70 {
		t.Errorf("what is evaluated: %v", err)
	}
}

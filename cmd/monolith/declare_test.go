package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/projections/models"
)

// TestDeclare declares a model by its YAML file, as an operator of single roles does.
func TestDeclare(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Replicas, cfg.Trainers, cfg.Shards = 1, 1, 1
	w := opsStart(t, cfg)
	text, err := os.ReadFile(filepath.Join(repository, "internal", "model", "modelspec", "testdata", "movies.yaml"))
	w.must("read the sample", err)
	file := filepath.Join(t.TempDir(), "films.yaml")
	w.must("write it", os.WriteFile(file, []byte(strings.Replace(string(text), "name: movies", "name: films", 1)), 0o600))

	code, out, stderr := w.tool("declare", file)
	var answer struct{ Seq uint64 }
	if err := json.Unmarshal([]byte(out), &answer); code != exitOK || err != nil || answer.Seq == 0 {
		t.Fatalf("declare: %d %q %s %v", code, out, stderr, err)
	}
	w.until("the catalogue", func() (ok bool, say string) {
		w.job.Catalog.Read(func(s models.State) { ok = s.Models["films"].Spec.V.GetName() == "films" })
		return ok, "films is not declared"
	})
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	w.must("write it", os.WriteFile(bad, []byte("name: films\ntables: 7\n"), 0o600))
	for args, says := range map[string]string{bad: "bad.yaml", "/nowhere.yaml": "no such file"} {
		if code, _, stderr := w.tool("declare", args); code != exitFailure || !strings.Contains(stderr, says) {
			t.Errorf("declare %s: %d %s", args, code, stderr)
		}
	}
	if code, _, _ := w.tool("declare", file, bad); code != exitUsage {
		t.Errorf("two files: %d", code)
	}
}

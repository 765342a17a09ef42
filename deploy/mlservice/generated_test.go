package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratedIsCurrent holds that the resource's definition and its copies are those of its Go types.
func TestGeneratedIsCurrent(t *testing.T) {
	dir := t.TempDir()
	generate := exec.Command("go", "tool", "controller-gen", "object", "crd:maxDescLen=0,generateEmbeddedObjectMeta=true", "paths=./api/v1", "output:dir="+dir)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range []string{"config/mlplatform.volcengine.com_mlservices.yaml", "api/v1/zz_generated.deepcopy.go"} {
		want, err := os.ReadFile(filepath.Join(dir, filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not of the types (%v): run `go generate ./...` in deploy/mlservice", path, err)
		}
	}
}

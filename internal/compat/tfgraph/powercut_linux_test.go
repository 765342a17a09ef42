package tfgraph_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/compat/tfgraph"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/testenv/powercut"
)

// A SavedModel whose write has returned is there after a cut.
func TestPowerCut(t *testing.T) {
	spec, err := specfile.Read("../../../docs/models/lr.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := modelspec.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	m := &tfgraph.Model{Spec: spec, Dense: map[string]checkpoint.Variable{}}
	for _, v := range compiled.Variables {
		m.Dense[v.Name] = checkpoint.Variable{Shape: v.Shape, Values: modelspec.InitVariable(spec, v)}
	}
	mount, disk := powercut.ForTest(t, powercut.Strict)
	dir := filepath.Join(mount, "models", "1")
	if err := tfgraph.Write(dir, m); err != nil {
		t.Fatal(err)
	}
	if err := disk.Cut(powercut.Nothing, nil, func() {}, func() {}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, tfgraph.FileName)); err != nil || info.Size() == 0 {
		t.Errorf("the graph after the cut: %v", err)
	}
	b, err := tensorbundle.Open(filepath.Join(dir, "variables", "variables"))
	if err != nil {
		t.Fatalf("the variables after the cut: %v", err)
	}
	if _, err := b.Floats("dense/" + compiled.Variables[0].Name); err != nil {
		t.Errorf("a variable after the cut: %v", err)
	}
}

package inspect

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/specfile"
)

func ready(t *testing.T, name string) *model.ModelSpec {
	t.Helper()
	spec, err := specfile.Read(filepath.Join("../../../docs/models", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What check says of DeepFM can be computed by hand.
func TestCheck(t *testing.T) {
	r, err := Check(ready(t, "deepfm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	const parameters = 32*128 + 128 + 128*64 + 64 + 64 + 1
	if r.Parameters != parameters {
		t.Errorf("%d parameters, want %d", r.Parameters, parameters)
	}
	for _, line := range []string{
		"user 17 w:1 v:16",
		"v STACK 2 [n 2 16]",
		"pairs fm v [n 1] 0",
		"logit add w pairs deep [n 1] 0",
		"deep/0/kernel [32 128] 16384",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), line) {
			t.Errorf("no line %q in\n%s", line, b.String())
		}
	}
}

// The cost of a model's only product, by hand, on either side of the machine's balance.
func TestCost(t *testing.T) {
	spec := ready(t, "dcn-v2.yaml")
	spec.Layers = spec.Layers[2:]
	spec.Layers[0].Inputs = []string{"x"}
	for _, tc := range []struct {
		on    Machine
		binds string
	}{{Machine{GFLOPs: 1000, GBs: 1}, "memory"}, {Machine{GFLOPs: 1, GBs: 1000}, "compute"}} {
		c, err := Cost(spec, 512, true, tc.on)
		if err != nil {
			t.Fatal(err)
		}
		n := c.Nodes[0]
		const flop, bytes = 2 * 512 * 64, 4 * (512*64 + 64 + 1 + 512)
		if n.Op != "matmul" || n.GFLOP*1e9 != flop || n.MB*1e6 != bytes || n.Binds != tc.binds {
			t.Errorf("%+v: %+v", tc.on, n)
		}
		want := max(flop/tc.on.GFLOPs, bytes/tc.on.GBs) / 1e9
		if d := n.Seconds/want - 1; d > 1e-9 || d < -1e-9 {
			t.Errorf("%+v: %g s, want %g", tc.on, n.Seconds, want)
		}
	}
	c, err := Cost(spec, 512, false, Machine{GFLOPs: 1, GBs: 1})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Print(&b); err != nil || !strings.Contains(b.String(), "gradient of logit/kernel (matmul_tn)") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for _, bad := range []int{0, MaxBatch + 1} {
		if _, err := Cost(spec, bad, false, Machine{GFLOPs: 1, GBs: 1}); err == nil {
			t.Errorf("a batch of %d is taken", bad)
		}
	}
}

// What init writes is valid, the same for a program, and spares a file that is there.
func TestInit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := Init(file, "", nil); err != nil {
		t.Fatal(err)
	}
	spec, err := specfile.Read(file, nil)
	if err == nil {
		_, err = Check(spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Init(file, "", nil); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("again: %v", err)
	}
	var b bytes.Buffer
	text, err := os.ReadFile(file)
	if err != nil || Init("-", "", &b) != nil || !bytes.Equal(text, b.Bytes()) {
		t.Errorf("to standard output: %v\n%s", err, b.String())
	}
}

func TestMeasure(t *testing.T) {
	m := Measure(20e6)
	if !(m.GFLOPs > 0.1 && m.GFLOPs < 1e6 && m.GBs > 0.1 && m.GBs < 1e5 && m.BF16 > 0.1 && m.INT8 > 0.1) || m.Kernels.Float32 == "" || m.Kernels.Tables == "" {
		t.Errorf("%+v", m)
	}
	if of := (Machine{GFLOPs: 7}).Or(m); of.GFLOPs != 7 || of.BF16 != 0 || of.INT8 != 0 || of.GBs != m.GBs {
		t.Errorf("%+v", of)
	}
}

// A product of bfloat16 or int8 is as fast as the machine's ceiling for those.
func TestCostByPrecision(t *testing.T) {
	costByPrecision(t, model.ModelSpec_BF16, Machine{GFLOPs: 1, BF16: 4, INT8: 2, GBs: 1000})
	costByPrecision(t, model.ModelSpec_INT8, Machine{GFLOPs: 1, BF16: 2, INT8: 4, GBs: 1000})
}

func costByPrecision(t *testing.T, compute model.ModelSpec_Compute, on Machine) {
	t.Helper()
	spec := ready(t, "dcn-v2.yaml")
	spec.ServingCompute = compute
	slow, err := Cost(spec, 512, true, Machine{GFLOPs: 1, GBs: 1000})
	if err != nil {
		t.Fatal(err)
	}
	fast, err := Cost(spec, 512, true, on)
	if err != nil {
		t.Fatal(err)
	}
	var faster int
	for i, n := range slow.Nodes {
		if r := n.Seconds / fast.Nodes[i].Seconds; r > 3.9 && n.Op == "matmul" {
			faster++
		} else if r != 1 {
			t.Errorf("%s (%s) is %g times as fast", n.Name, n.Op, r)
		}
	}
	if faster == 0 {
		t.Errorf("no product is faster: %+v", fast.Nodes)
	}
}

// The ids of a sample: two features of one id, a sequence, and a crossed feature.
func TestRowCosts(t *testing.T) {
	spec := ready(t, "din.yaml")
	ids := idsByTable(spec)
	for _, serving := range []bool{true, false} {
		rows, err := RowCosts(spec, 64, serving, 5e6)
		if err != nil || len(rows) != len(spec.Tables) {
			t.Fatalf("%+v, %v", rows, err)
		}
		for _, r := range rows {
			if r.IDs != ids[r.Table] || r.Bytes%cacheLine != 0 || r.Bytes == 0 || !(r.PerSecond > 1e4 && r.PerSecond < 1e11) {
				t.Errorf("%+v", r)
			}
			if want := float64(64*r.IDs) / r.PerSecond; r.Seconds != want {
				t.Errorf("%+v: %g s, want %g", r, r.Seconds, want)
			}
		}
	}
	crossed := &model.ModelSpec{Features: []*model.Feature{
		{Name: "a", Table: "t", Pooling: model.Feature_FIRSTN, MaxSequenceLength: 5}, {Name: "b", Table: "u"},
		{Name: "ab", Table: "t", Cross: []string{"a", "b"}},
	}}
	if ids := idsByTable(crossed); ids["t"] != 10 || ids["u"] != 1 {
		t.Errorf("%v", ids)
	}
}

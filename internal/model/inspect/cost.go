package inspect

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Machine is what a processor can do at most.
type Machine struct {
	GFLOPs float64 `json:"gflops"` // multiply-adds of float32 a second, each counting two, in 1e9
	BF16   float64 `json:"bf16"`   // those of bfloat16; 0: as of float32
	INT8   float64 `json:"int8"`   // those of int8; 0: as of float32
	GBs    float64 `json:"gbs"`    // bytes a second to and from memory, in 1e9
	// Kernels are those of the machine that was measured, nil for one that was only told.
	Kernels *Kernels `json:"kernels,omitempty"`
}

// Costs are what the operations of a batch take.
type Costs struct {
	Model   string  `json:"model"`
	Batch   int     `json:"batch"`
	Serving bool    `json:"serving"`
	Machine Machine `json:"machine"`
	Nodes   []Node  `json:"nodes"`
	Total   Node    `json:"total"`
	Rate    float64 `json:"samples_per_second"` // at most, without rows
	Rows    []Rows  `json:"rows,omitempty"`     // where they were measured
}

// Node is one operation of the compiled program. Intensity is operations for each byte; an
// operation below the machine's own, GFLOPs over GBs, waits for memory unless its operands are
// in a cache.
type Node struct {
	Name      string  `json:"name"`
	Op        string  `json:"op,omitempty"`
	GFLOP     float64 `json:"gflop"`
	MB        float64 `json:"mb"`
	Intensity float64 `json:"intensity"`
	Binds     string  `json:"binds"` // "compute" or "memory"
	Seconds   float64 `json:"seconds"`
}

// MaxBatch bounds the batches that costs are told of.
const MaxBatch = 1 << 20

// Cost tells what a training step of batch samples takes, or with serving a Predict's. Rows and
// their updates are not in it: they are the tables'.
func Cost(spec *model.ModelSpec, batch int, serving bool, on Machine) (*Costs, error) {
	if batch < 1 || batch > MaxBatch {
		return nil, fmt.Errorf("a batch of %d samples: give 1 to %d", batch, MaxBatch)
	}
	if !(on.GFLOPs > 0) || !(on.GBs > 0) {
		return nil, fmt.Errorf("a machine of %g GFLOP/s and %g GB/s: give numbers above 0", on.GFLOPs, on.GBs)
	}
	m, err := modelspec.Compile(spec)
	if err != nil {
		return nil, err
	}
	g := m.Train
	if serving {
		g = m.Serve
	}
	p, err := nn.Compile(g, nn.Options{})
	if err != nil {
		return nil, err
	}
	c := &Costs{Model: spec.GetName(), Batch: batch, Serving: serving, Machine: on, Total: Node{Name: "total"}}
	names := gradients(m, g)
	var all graph.Cost
	for _, s := range p.Steps(batch) {
		name := s.Name
		if of := names[name]; of != "" {
			name = of
		}
		n := on.node(name, s.Op, s.Cost)
		c.Nodes, all = append(c.Nodes, n), all.Add(s.Cost)
		c.Total.Seconds += n.Seconds
	}
	total := on.node("total", nil, all)
	total.Seconds = c.Total.Seconds
	c.Total, c.Rate = total, float64(batch)/total.Seconds
	return c, nil
}

// node is an operation's cost on a machine.
func (on Machine) node(name string, op graph.Op, c graph.Cost) Node {
	n := Node{Name: name, GFLOP: c.FLOPs / 1e9, MB: c.Bytes / 1e6, Binds: "memory", Seconds: c.Bytes / 1e9 / on.GBs}
	if c.Bytes > 0 {
		n.Intensity = c.FLOPs / c.Bytes
	}
	peak := on.GFLOPs
	if op != nil {
		n.Op = op.Name()
		if p, ok := op.(graph.MatMul); ok {
			peak = cmp.Or([...]float64{graph.BF16: on.BF16, graph.INT8: on.INT8}[p.Precision], peak)
		}
	}
	if compute := n.GFLOP / peak; compute > n.Seconds {
		n.Binds, n.Seconds = "compute", compute
	}
	return n
}

// gradients names the nodes that are gradients by a variable or a tensor of rows.
func gradients(m *modelspec.Model, g *graph.Graph) map[string]string {
	names, k := map[string]string{}, 0
	for _, o := range g.Outputs() {
		if !strings.HasPrefix(o.Name, "gradient ") {
			continue
		}
		of := "rows"
		if i := k - m.Tensors; i >= 0 {
			of = m.Variables[i].Name
		}
		names[g.Nodes()[o.ID].Name] = "gradient of " + of
		k++
	}
	return names
}

// Print writes the costs as a table.
func (c *Costs) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "GFLOP\tMB\tFLOP/byte\tms\tbinds\t  node\n")
	for _, n := range append(c.Nodes[:len(c.Nodes):len(c.Nodes)], c.Total) {
		name := n.Name
		if n.Op != "" {
			name += " (" + n.Op + ")"
		}
		fmt.Fprintf(t, "%.4f\t%.3f\t%.1f\t%.4f\t%s\t  %s\n", n.GFLOP, n.MB, n.Intensity, 1e3*n.Seconds, n.Binds, name)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	what := "trained"
	if c.Serving {
		what = "scored"
	}
	_, err := fmt.Fprintf(w, "\n%s: %.3g MFLOP a sample %s, at most %.3g samples a second at %.4g GFLOP/s and %.4g GB/s, without rows\n",
		c.Model, 1e3*c.Total.GFLOP/float64(c.Batch), what, c.Rate, c.Machine.GFLOPs, c.Machine.GBs)
	for _, r := range c.Rows {
		if err == nil && r.IDs > 0 {
			_, err = fmt.Fprintf(w, "rows of table %s: %d of %d bytes a sample, at most %.3g samples a second at %.3g million rows a second\n",
				r.Table, r.IDs, r.Bytes, float64(c.Batch)/r.Seconds, r.PerSecond/1e6)
		}
	}
	if k := c.Machine.Kernels; err == nil && k != nil {
		_, err = fmt.Fprintf(w, "kernels: float32 %s, bfloat16 %s at %.4g GFLOP/s, int8 %s at %.4g, tables %s\n", k.Float32, k.BFloat16, c.Machine.BF16, k.Int8, c.Machine.INT8, k.Tables)
		if err == nil && k.Refused != "" {
			_, err = fmt.Fprintf(w, "refused: %s\n", k.Refused)
		}
	}
	return err
}

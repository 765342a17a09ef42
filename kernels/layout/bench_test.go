package layout_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

// benchWorld is 26 features of 1 + 16 floats in 4 tables on 4 shards: half of them have
// one id, half have 1 to 10; ids are Zipf-distributed.
func benchWorld(batch int) *world {
	rng := rand.New(rand.NewPCG(uint64(batch), 5))
	zipf := rand.NewZipf(rng, 1.2, 1, 630_000)
	w := &world{cfg: layout.Config{Shards: 4}, batch: batch, rows: map[string][][]uint64{}, shared: map[string]bool{}}
	bias := layout.Output{Name: "bias", Type: layout.AddN}
	vec := layout.Output{Name: "vec", Type: layout.Stack}
	for i := range 26 {
		f := layout.Feature{Name: fmt.Sprintf("f%02d", i), Table: fmt.Sprintf("t%d", i%4), SliceDims: []int{1, 16}, Pooling: layout.Pooling(i / 2 % 2)}
		w.cfg.Features = append(w.cfg.Features, f)
		bias.Slices = append(bias.Slices, layout.Slice{Feature: f.Name, Start: 0, End: 1})
		vec.Slices = append(vec.Slices, layout.Slice{Feature: f.Name, Start: 1, End: 17})
		for range batch {
			n := 1
			if i%2 == 1 {
				n = 1 + rng.IntN(10)
			}
			row := make([]uint64, n)
			for j := range row {
				row[j] = layouttest.MakeV2(uint32(i), zipf.Uint64())
			}
			w.rows[f.Name] = append(w.rows[f.Name], row)
		}
	}
	w.cfg.Outputs = []layout.Output{bias, vec}
	return w
}

type bench struct {
	w      *world
	p      *layout.Plan
	batch  *layout.Batch
	shards layout.Shards
	rows   *layout.Rows
	ids    int
}

func newBench(b testing.TB, batch int) *bench {
	x := &bench{w: benchWorld(batch)}
	x.p = compile(b, x.w.cfg)
	x.batch = x.p.NewBatch()
	x.w.fill(b, x.p, x.batch, false)
	if err := x.p.Shard(&x.shards, x.batch, layout.ShardOptions{Version: layout.V5, Unique: true}); err != nil {
		b.Fatal(err)
	}
	var embeddings [][]float32
	for i := range x.shards.EmbSize {
		e := make([]float32, x.shards.EmbSize[i])
		for j := range e {
			e[j] = float32(j % 7)
		}
		embeddings = append(embeddings, e)
	}
	x.rows = x.shards.Rows(embeddings)
	x.ids = len(x.shards.FIDOffset)
	return x
}

// each runs do at three batch sizes, serially and with one worker for each processor.
func each(b *testing.B, do func(x *bench, r layout.Runner) error) {
	pool := partest.New(b, runtime.GOMAXPROCS(0))
	for _, batch := range []int{64, 640, 6400} {
		x := newBench(b, batch)
		for name, r := range map[string]layout.Runner{"serial": nil, "parallel": pool} {
			b.Run(fmt.Sprintf("batch=%d/%s", batch, name), func(b *testing.B) {
				if err := do(x, r); err != nil { // the first call allocates
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := do(x, r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(x.ids)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mids/s")
			})
		}
	}
}

func BenchmarkSharding(b *testing.B) {
	each(b, func(x *bench, r layout.Runner) error {
		return x.p.Shard(&x.shards, x.batch, layout.ShardOptions{Version: layout.V5, Unique: true, Runner: r})
	})
}

func BenchmarkReadExamples(b *testing.B) {
	inputs := map[int][][]byte{}
	each(b, func(x *bench, _ layout.Runner) error {
		if inputs[x.w.batch] == nil {
			inputs[x.w.batch] = x.w.examples()
		}
		return x.batch.ReadExamples(inputs[x.w.batch])
	})
}

func BenchmarkLayoutForward(b *testing.B) {
	var out []layout.Tensor
	each(b, func(x *bench, r layout.Runner) (err error) {
		out, err = x.p.Forward(out, x.rows, r)
		return err
	})
}

func BenchmarkLayoutGradient(b *testing.B) {
	var out []layout.Tensor
	var back [][]float32
	each(b, func(x *bench, r layout.Runner) (err error) {
		if len(out) == 0 || len(out[0].Data) != x.w.batch {
			if out, err = x.p.Forward(out, x.rows, nil); err != nil {
				return err
			}
		}
		back, err = x.p.Gradient(back, x.rows, data(out), r)
		return err
	})
}

// Steady state allocates nothing that grows with the batch.
func TestAllocations(t *testing.T) {
	for _, batch := range []int{50, 1000} {
		x := newBench(t, batch)
		examples := x.w.examples()
		var out []layout.Tensor
		var back [][]float32
		step := func() {
			err := x.batch.ReadExamples(examples)
			if err == nil {
				err = x.p.Shard(&x.shards, x.batch, layout.ShardOptions{Version: layout.V5, Unique: true})
			}
			if err == nil {
				out, err = x.p.Forward(out, x.rows, nil)
			}
			if err == nil {
				back, err = x.p.Gradient(back, x.rows, data(out), nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(20, step); n > 100 {
			t.Errorf("a step of %d samples (%d ids) allocates %v times", batch, x.ids, n)
		} else {
			t.Logf("a step of %d samples (%d ids) allocates %v times", batch, x.ids, n)
		}
	}
}

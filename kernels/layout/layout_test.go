package layout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

var versions = []layout.Version{layout.V1, layout.V2, layout.V3, layout.V4, layout.V5}

func compile(t testing.TB, cfg layout.Config) *layout.Plan {
	t.Helper()
	p, err := layout.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fill puts w's batch into b.
func (w *world) fill(t testing.TB, p *layout.Plan, b *layout.Batch, columns bool) {
	t.Helper()
	reset := b.Reset
	if columns {
		reset = b.ResetColumns
	}
	if err := reset(w.batch); err != nil {
		t.Fatal(err)
	}
	for name, rows := range w.rows {
		f, ok := p.Feature(name)
		if !ok {
			t.Fatalf("plan has no feature %q", name)
		}
		if columns {
			if err := b.Column(f, len(rows), w.shared[name]); err != nil {
				t.Fatal(err)
			}
		}
		for i, row := range rows {
			if err := b.Row(f, i, false, row); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sameShards compares everything that is exported, empty and nil being the same.
func sameShards(t *testing.T, got, want *layout.Shards) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(layout.Shards{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("shards (-want +got):\n%s", diff)
	}
}

func closeTo(t *testing.T, what string, got []float32, want, size []float64, terms int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d floats, want %d", what, len(got), len(want))
	}
	for i := range got {
		bound := 1e-6
		if size != nil {
			bound = size[i]
		} else {
			bound = 2 * float64(terms)
		}
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= (bound+1e-30)*float64(terms+2)*0x1p-23) {
			t.Fatalf("%s[%d] = %g, want %g", what, i, got[i], want[i])
		}
	}
}

func sameBits(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	for i := range want {
		if !slices.EqualFunc(got[i], want[i], func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Fatalf("%s: tensor %d differs in bits", what, i)
		}
	}
}

func data(tensors []layout.Tensor) [][]float32 {
	var out [][]float32
	for _, x := range tensors {
		out = append(out, x.Data)
	}
	return out
}

// check runs one world through every version, serially and on a pool, and compares it
// with the oracle.
func check(t *testing.T, rng *rand.Rand, w *world, columns, equal bool, pool *par.Pool) {
	t.Helper()
	p := compile(t, w.cfg)
	b := p.NewBatch()
	w.fill(t, p, b, columns)
	var grads [][]float32
	want := w.forward()
	for _, tensor := range want {
		g := make([]float32, len(tensor))
		for i := range g {
			g[i] = rng.Float32()*2 - 1
		}
		grads = append(grads, g)
	}
	terms := 9 * 6 * max(1, w.batch)
	var shards layout.Shards // used again and again
	for _, unique := range []bool{true, false} {
		c := w.cut(unique)
		var firstForward [][]float32
		for _, v := range versions {
			if v == layout.V1 && !equal {
				continue
			}
			name := fmt.Sprintf("v%d unique=%v", v, unique)
			opt := layout.ShardOptions{Version: v, Unique: unique}
			if err := p.Shard(&shards, b, opt); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sameShards(t, &shards, w.shards(v, unique))
			opt.Runner, opt.Watermark = pool, 1+rng.IntN(50)
			if err := p.Shard(&shards, b, opt); err != nil {
				t.Fatalf("%s on a pool: %v", name, err)
			}
			sameShards(t, &shards, w.shards(v, unique))

			rows := shards.Rows(w.embeddings(c, v))
			got, err := p.Forward(nil, rows, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, shapes := p.Tensors(w.batch)
			for i := range want {
				closeTo(t, fmt.Sprintf("%s: tensor %d", name, i), got[i].Data, want[i], nil, 9*6)
				if !slices.Equal(got[i].Shape, shapes[i]) {
					t.Fatalf("%s: tensor %d has shape %v, want %v", name, i, got[i].Shape, shapes[i])
				}
			}
			onPool, err := p.Forward(nil, rows, pool)
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, name+" on a pool", data(onPool), data(got))
			if firstForward == nil {
				firstForward = data(got)
			}
			sameBits(t, name+" against the first version", data(got), firstForward)
			rows.Once = true
			once, err := p.Forward(nil, rows, pool)
			if err != nil {
				t.Fatal(err)
			}
			w.sameOnce(t, name, once, got)
			rows.Once = false

			back, err := p.Gradient(nil, rows, grads, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sum, size := w.gradient(c, v, grads)
			for i := range sum {
				closeTo(t, fmt.Sprintf("%s: gradient %d", name, i), back[i], sum[i], size[i], terms)
			}
			again, err := p.Gradient(back2(back), rows, grads, pool)
			if err != nil {
				t.Fatal(err)
			}
			sameBits(t, name+" gradient on a pool", again, back)
		}
	}
}

// sameOnce says that tensors are those of each sample, and that what all samples share has one row.
func (w *world) sameOnce(t *testing.T, name string, once, each []layout.Tensor) {
	t.Helper()
	var shared []bool // by tensor
	for _, o := range slices.SortedFunc(slices.Values(w.cfg.Outputs), func(a, b layout.Output) int { return strings.Compare(a.Name, b.Name) }) {
		all := true
		for _, s := range o.Slices {
			one := w.shared[s.Feature] || w.rows[s.Feature] == nil
			if all = all && one; o.Type == layout.None {
				shared = append(shared, one)
			}
		}
		if o.Type != layout.None {
			shared = append(shared, all)
		}
	}
	for i, got := range once {
		data := got.Data
		if shared[i] && w.batch > 0 {
			data = slices.Repeat(data, w.batch)
			if got.Shape[0] != 1 {
				t.Fatalf("%s: tensor %d, which all samples share, has shape %v", name, i, got.Shape)
			}
		} else if got.Shape[0] != w.batch {
			t.Fatalf("%s: tensor %d has shape %v", name, i, got.Shape)
		}
		sameBits(t, name+" once", [][]float32{data}, [][]float32{each[i].Data})
	}
}

// back2 makes dirty memory of the right size, which must not show.
func back2(like [][]float32) [][]float32 {
	out := make([][]float32, len(like))
	for i := range like {
		out[i] = slices.Repeat([]float32{float32(math.NaN())}, len(like[i]))
	}
	return out
}

func FuzzAgainstDefinition(f *testing.F) {
	for seed := range uint64(150) {
		f.Add(seed, seed%2 == 0, seed%4 < 2)
	}
	pool := partest.New(f, 4)
	f.Fuzz(func(t *testing.T, seed uint64, columns, equal bool) {
		rng := rand.New(rand.NewPCG(seed, 1))
		check(t, rng, randomWorld(rng, columns, equal), columns, equal, pool)
	})
}

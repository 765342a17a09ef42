package densetest_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/densetest"
)

func draw(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func params(r *rand.Rand, layers []densetest.Layer) [][]float32 {
	var p [][]float32
	for _, l := range layers {
		k := draw(r, l.In*l.Out)
		for i := range k {
			k[i] /= float32(math.Sqrt(float64(l.In)))
		}
		p = append(p, k, draw(r, l.Out))
	}
	return p
}

func like(p [][]float32) [][]float32 {
	var out [][]float32
	for _, x := range p {
		out = append(out, make([]float32, len(x)))
	}
	return out
}

func tower(t testing.TB, layers []densetest.Layer) *densetest.Tower {
	t.Helper()
	tw, err := densetest.New(layers)
	if err != nil {
		t.Fatal(err)
	}
	return tw
}

// reference is a forward and backward pass of one sample as the formulas read, in
// float64. Gradients are added to grads; dx is returned.
func reference(layers []densetest.Layer, p [][]float64, x []float64, dlogit float64, grads [][]float64) (logit float64, dx []float64) {
	acts := [][]float64{x}
	for l, layer := range layers {
		y := make([]float64, layer.Out)
		for o := range y {
			y[o] = p[2*l+1][o]
			for i := range layer.In {
				y[o] += acts[l][i] * p[2*l][i*layer.Out+o]
			}
			if l < len(layers)-1 {
				switch layer.Activation {
				case densetest.ActReLU:
					y[o] = math.Max(0, y[o])
				case densetest.ActSigmoid:
					y[o] = 1 / (1 + math.Exp(-y[o]))
				}
			}
		}
		acts = append(acts, y)
	}
	logit = acts[len(layers)][0]
	if grads == nil {
		return logit, nil
	}
	dz := []float64{dlogit}
	for l := len(layers) - 1; l >= 0; l-- {
		layer := layers[l]
		dx = make([]float64, layer.In)
		for o := range layer.Out {
			grads[2*l+1][o] += dz[o]
			for i := range layer.In {
				grads[2*l][i*layer.Out+o] += acts[l][i] * dz[o]
				dx[i] += p[2*l][i*layer.Out+o] * dz[o]
			}
		}
		if l > 0 {
			for i, y := range acts[l] {
				switch layers[l-1].Activation {
				case densetest.ActReLU:
					if y <= 0 {
						dx[i] = 0
					}
				case densetest.ActSigmoid:
					dx[i] *= y * (1 - y)
				}
			}
		}
		dz = dx
	}
	return logit, dx
}

func wide(p [][]float32) [][]float64 {
	var out [][]float64
	for _, x := range p {
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = float64(v)
		}
		out = append(out, y)
	}
	return out
}

// The reference's own gradient is right: finite differences in float64 say so.
func TestReferenceAgainstFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	layers := []densetest.Layer{{5, 4, densetest.ActSigmoid}, {4, 3, densetest.ActLinear}, {3, 6, densetest.ActReLU}, {6, 1, densetest.ActSigmoid}}
	p := wide(params(r, layers))
	x := wide([][]float32{draw(r, 5)})[0]
	grads := wide(like(params(r, layers)))
	_, dx := reference(layers, p, x, 1, grads)
	const h = 1e-6
	check := func(what string, v *float64, got float64) {
		old := *v
		*v = old + h
		up, _ := reference(layers, p, x, 1, nil)
		*v = old - h
		down, _ := reference(layers, p, x, 1, nil)
		*v = old
		if want := (up - down) / (2 * h); math.Abs(got-want) > 1e-7 {
			t.Errorf("%s: gradient %g, differences say %g", what, got, want)
		}
	}
	for i := range p {
		for j := range p[i] {
			check("param", &p[i][j], grads[i][j])
		}
	}
	for i := range x {
		check("input", &x[i], dx[i])
	}
}

func FuzzTower(f *testing.F) {
	for i := range uint8(12) {
		f.Add(uint64(i), i, uint8(1+i%3), uint8(3*i+1), uint8(17*i))
	}
	f.Add(uint64(9), uint8(8), uint8(3), uint8(64), uint8(255))
	f.Fuzz(func(t *testing.T, seed uint64, batch, depth, in, units uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, n := int(batch%33), int(in)%64+1
		var layers []densetest.Layer
		for l := range int(depth % 4) {
			out := (int(units)+7*l)%64 + 1
			layers = append(layers, densetest.Layer{In: n, Out: out, Activation: densetest.Activation(r.IntN(3))})
			n = out
		}
		layers = append(layers, densetest.Layer{In: n, Out: 1, Activation: densetest.ActSigmoid})
		compare(t, r, layers, b)
	})
}

func compare(t *testing.T, r *rand.Rand, layers []densetest.Layer, batch int) {
	t.Helper()
	tw := tower(t, layers)
	p, x, dlogits := params(r, layers), draw(r, batch*tw.In()), draw(r, batch)
	var ws densetest.Workspace
	logits, err := tw.Forward(p, x, batch, &ws)
	if err != nil {
		t.Fatal(err)
	}
	grads, dx := like(p), make([]float32, len(x))
	for _, g := range grads {
		for i := range g {
			g[i] = 99 // must be overwritten
		}
	}
	if err := tw.Backward(p, &ws, dlogits, grads, dx); err != nil {
		t.Fatal(err)
	}
	p64, want := wide(p), wide(like(p))
	x64 := wide([][]float32{x})[0]
	for b := range batch {
		logit, d := reference(layers, p64, x64[b*tw.In():(b+1)*tw.In()], float64(dlogits[b]), want)
		if math.Abs(float64(logits[b])-logit) > 2e-4*(1+math.Abs(logit)) {
			t.Fatalf("%v: logit %d is %g, want %g", layers, b, logits[b], logit)
		}
		for i, v := range d {
			if math.Abs(float64(dx[b*tw.In()+i])-v) > 2e-3*(1+math.Abs(v)) {
				t.Fatalf("%v: dx[%d,%d] is %g, want %g", layers, b, i, dx[b*tw.In()+i], v)
			}
		}
	}
	for i := range want {
		for j, v := range want[i] {
			if math.Abs(float64(grads[i][j])-v) > 2e-3*(1+math.Abs(v)) {
				t.Fatalf("%v: gradient %d[%d] is %g, want %g", layers, i, j, grads[i][j], v)
			}
		}
	}
}

var movies = []densetest.Layer{{64, 256, densetest.ActReLU}, {256, 64, densetest.ActReLU}, {64, 1, densetest.ActSigmoid}}

func TestMovieTowerAgainstReference(t *testing.T) {
	compare(t, rand.New(rand.NewPCG(1, 1)), movies, 9)
}

func TestASampleDoesNotDependOnItsBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	tw := tower(t, movies)
	p, x := params(r, movies), draw(r, 13*64)
	var all, one densetest.Workspace
	together, err := tw.Forward(p, x, 13, &all)
	if err != nil {
		t.Fatal(err)
	}
	for b := range 13 {
		alone, err := tw.Forward(p, slices.Clone(x[b*64:(b+1)*64]), 1, &one)
		if err != nil || alone[0] != together[b] {
			t.Errorf("sample %d: %g alone, %g together, %v", b, alone[0], together[b], err)
		}
	}
}

func TestSameInputsSameBits(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	tw := tower(t, movies)
	p, x, d := params(r, movies), draw(r, 11*64), draw(r, 11)
	run := func(ws *densetest.Workspace) [][]float32 {
		x := append(make([]float32, 3), x...)[3:] // elsewhere in memory
		logits, err := tw.Forward(p, x, 11, ws)
		if err != nil {
			t.Fatal(err)
		}
		out := append(like(p), slices.Clone(logits), make([]float32, len(x)))
		if err := tw.Backward(p, ws, d, out[:len(p)], out[len(p)+1]); err != nil {
			t.Fatal(err)
		}
		return out
	}
	used := &densetest.Workspace{}
	first := run(used)
	for _, ws := range []*densetest.Workspace{used, {}} {
		for i, got := range run(ws) {
			if !slices.Equal(got, first[i]) {
				t.Errorf("result %d differs", i)
			}
		}
	}
}

func TestNaNComesThrough(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	tw := tower(t, movies)
	p, x := params(r, movies), make([]float32, 64) // zeros: 0 * NaN counts too
	p[0][5] = float32(math.NaN())
	var ws densetest.Workspace
	logits, err := tw.Forward(p, x, 1, &ws)
	if err != nil || logits[0] == logits[0] {
		t.Errorf("logit %v, %v: a poisoned weight is hidden", logits, err)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	tw := tower(t, movies)
	p, x, d := params(r, movies), draw(r, 16*64), make([]float32, 16)
	grads, dx, labels := like(p), make([]float32, len(x)), make([]float32, 16)
	var ws densetest.Workspace
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range []int{16, 3} {
			logits, err := tw.Forward(p, x[:b*64], b, &ws)
			if err != nil {
				t.Fatal(err)
			}
			densetest.SigmoidCrossEntropy(logits, labels[:b], d[:b])
			if err := tw.Backward(p, &ws, d[:b], grads, dx[:b*64]); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

func TestRefusals(t *testing.T) {
	for name, layers := range map[string][]densetest.Layer{
		"none":               nil,
		"no inputs":          {{0, 1, densetest.ActSigmoid}},
		"negative":           {{4, -1, densetest.ActReLU}},
		"do not fit":         {{4, 3, densetest.ActReLU}, {4, 1, densetest.ActSigmoid}},
		"two outputs":        {{4, 2, densetest.ActSigmoid}},
		"last is linear":     {{4, 1, densetest.ActLinear}},
		"unknown activation": {{4, 3, 7}, {3, 1, densetest.ActSigmoid}},
	} {
		if _, err := densetest.New(layers); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	r := rand.New(rand.NewPCG(2, 1))
	layers := []densetest.Layer{{3, 2, densetest.ActReLU}, {2, 1, densetest.ActSigmoid}}
	tw, p := tower(t, layers), params(r, layers)
	var ws, other densetest.Workspace
	forward := func(p [][]float32, x, batch int) error {
		_, err := tw.Forward(p, make([]float32, x), batch, &other)
		return err
	}
	if _, err := tw.Forward(p, make([]float32, 6), 2, &ws); err != nil {
		t.Fatal(err)
	}
	bad := like(p)
	bad[2] = bad[2][:1]
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"few params":      {forward(p[:3], 3, 1), "3 parameters for 2 layers"},
		"short param":     {forward(bad, 3, 1), "parameters of layer 1"},
		"short x":         {forward(p, 5, 2), "got 5 floats"},
		"negative batch":  {forward(p, 0, -1), "-1 samples"},
		"short grads":     {tw.Backward(p, &ws, make([]float32, 2), bad, nil), "gradients of layer 1"},
		"short dlogits":   {tw.Backward(p, &ws, make([]float32, 1), like(p), nil), "1 gradients for 2 samples"},
		"short dx":        {tw.Backward(p, &ws, make([]float32, 2), like(p), make([]float32, 5)), "room for 5"},
		"foreign forward": {tower(t, layers).Backward(p, &ws, make([]float32, 2), like(p), nil), "no forward pass"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}

func TestSigmoidCrossEntropy(t *testing.T) {
	logits := []float32{0, 2, -3, 500, -500, 500}
	labels := []float32{1, 0, 1, 1, 0, 0}
	d := make([]float32, 6)
	got := densetest.SigmoidCrossEntropy(logits, labels, d)
	// ln 2, ln(1+e^2), ln(1+e^3), 0, 0, 500
	want := (math.Ln2 + math.Log1p(math.Exp(2)) + math.Log1p(math.Exp(3)) + 500) / 6
	if math.Abs(float64(got)-want) > 1e-4 {
		t.Errorf("loss %g, want %g", got, want)
	}
	for i, w := range []float64{-.5 / 6, 0.880797 / 6, (0.0474259 - 1) / 6, 0, 0, 1. / 6} {
		if math.Abs(float64(d[i])-w) > 1e-6 {
			t.Errorf("gradient %d is %g, want %g", i, d[i], w)
		}
	}
	if l := densetest.SigmoidCrossEntropy(nil, nil, nil); l != 0 {
		t.Errorf("loss of nothing is %g", l)
	}
	if s := []float32{densetest.Sigmoid(0), densetest.Sigmoid(1000), densetest.Sigmoid(-1000)}; !slices.Equal(s, []float32{.5, 1, 0}) {
		t.Errorf("sigmoid %v", s)
	}
}

func BenchmarkForward(b *testing.B)         { benchTower(b, 1, false) }
func BenchmarkForwardBackward(b *testing.B) { benchTower(b, 8, true) }

func benchTower(b *testing.B, batch int, back bool) {
	r := rand.New(rand.NewPCG(2, 1))
	tw := tower(b, movies)
	p, x, d := params(r, movies), draw(r, batch*64), draw(r, batch)
	grads, dx := like(p), make([]float32, len(x))
	var ws densetest.Workspace
	for b.Loop() {
		if _, err := tw.Forward(p, x, batch, &ws); err != nil {
			b.Fatal(err)
		}
		if back {
			if err := tw.Backward(p, &ws, d, grads, dx); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

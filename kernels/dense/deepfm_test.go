package dense_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/kernels/dense"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/par/partest"
)

func deepFM(t testing.TB, fields, dim int, hidden ...int) *dense.DeepFM {
	t.Helper()
	m, err := dense.NewDeepFM(fields, dim, hidden...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// deepReference is one sample of a DeepFM in float64: every pair, one by one.
func deepReference(layers []dense.Layer, fields int, p [][]float64, e []float64, linear []float64, dlogit float64, grads [][]float64) (logit float64, de []float64) {
	logit, de = reference(layers, p, e, dlogit, grads)
	dim := len(e) / fields
	for _, w := range linear {
		logit += w
	}
	for f := range fields {
		for g := range f {
			for i := range dim {
				a, b := e[f*dim+i], e[g*dim+i]
				logit += a * b
				if grads != nil {
					de[f*dim+i] += dlogit * b
					de[g*dim+i] += dlogit * a
				}
			}
		}
	}
	return logit, de
}

func TestDeepReferenceAgainstFiniteDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	m := deepFM(t, 4, 3, 5, 4)
	layers := m.Tower().Layers()
	p := wide(params(r, layers))
	e := wide([][]float32{draw(r, 12)})[0]
	grads := wide(like(params(r, layers)))
	_, de := deepReference(layers, 4, p, e, nil, 1, grads)
	const h = 1e-6
	check := func(what string, v *float64, got float64) {
		old := *v
		*v = old + h
		up, _ := deepReference(layers, 4, p, e, nil, 1, nil)
		*v = old - h
		down, _ := deepReference(layers, 4, p, e, nil, 1, nil)
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
	for i := range e {
		check("embedding", &e[i], de[i])
	}
}

// One step against the reference: fp32 tightly, bf16 within what its factors lose.
func TestDeepFMAgainstReference(t *testing.T) {
	for _, shape := range []struct {
		fields, dim, batch int
		hidden             []int
	}{{26, 16, 33, []int{64, 32, 16}}, {5, 7, 9, []int{11}}, {3, 32, 4, nil}, {1, 1, 1, []int{1}}, {26, 16, 0, []int{8}}} {
		for _, bf := range []bool{false, true} {
			r := rand.New(rand.NewPCG(2, 6))
			m := deepFM(t, shape.fields, shape.dim, shape.hidden...)
			layers, n := m.Tower().Layers(), shape.batch
			p := params(r, layers)
			e, lin, dlogits := draw(r, n*shape.fields*shape.dim), draw(r, n*shape.fields), draw(r, n)
			for i := range e {
				e[i] *= 0.2
			}
			ws := &dense.DeepFMWorkspace{Workspace: dense.Workspace{Pool: partest.New(t, 2), BF16: bf}}
			logits, err := m.Forward(p, e, lin, n, ws)
			if err != nil {
				t.Fatal(err)
			}
			logits = slices.Clone(logits)
			grads, de := like(p), make([]float32, len(e))
			for i := range de {
				de[i] = 99 // must be overwritten
			}
			if err := m.Backward(p, ws, dlogits, grads, de); err != nil {
				t.Fatal(err)
			}
			frozen, err := m.Freeze(p, bf, nil)
			if err != nil {
				t.Fatal(err)
			}
			if scores, err := frozen.Forward(e, lin, n, ws); err != nil || !slices.Equal(scores, logits) {
				t.Errorf("frozen: %v, %v; not frozen: %v", scores, err, logits)
			}
			p64, want, wantDE := wide(p), wide(like(p)), []float64{}
			in, fields := shape.fields*shape.dim, shape.fields
			var wantLogits []float64
			for b := range n {
				l, d := deepReference(layers, fields, p64, wide([][]float32{e[b*in : (b+1)*in]})[0], wide([][]float32{lin[b*fields : (b+1)*fields]})[0], float64(dlogits[b]), want)
				wantLogits, wantDE = append(wantLogits, l), append(wantDE, d...)
			}
			tol := 1e-5
			if bf {
				tol = 1.5e-2
			}
			near := func(what string, got []float32, want []float64) {
				var diff, norm float64
				for i, w := range want {
					diff, norm = diff+(float64(got[i])-w)*(float64(got[i])-w), norm+w*w
				}
				if !(math.Sqrt(diff) <= tol*math.Sqrt(norm)+1e-6) {
					t.Errorf("%+v bf16 %v: %s is off by %g of %g", shape, bf, what, math.Sqrt(diff), math.Sqrt(norm))
				}
			}
			near("logits", logits, wantLogits)
			near("embedding gradient", de, wantDE)
			for i, prm := range m.Params() {
				near(prm.Name, grads[i], want[i])
			}
		}
	}
}

// The promise of the package comment: batch and threads change no bit.
func TestDeepFMBits(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 6))
	m := deepFM(t, 26, 16, 256, 64, 32)
	p, e, lin, d := params(r, m.Tower().Layers()), draw(r, 512*416), draw(r, 512*26), draw(r, 512)
	for _, bf := range []bool{false, true} {
		run := func(n int) [][]float32 {
			ws := &dense.DeepFMWorkspace{Workspace: dense.Workspace{Pool: partest.New(t, n), BF16: bf}}
			logits, err := m.Forward(p, e, lin, 512, ws)
			if err != nil {
				t.Fatal(err)
			}
			out := append(like(p), slices.Clone(logits), make([]float32, len(e)))
			if err := m.Backward(p, ws, d, out[:len(p)], out[len(p)+1]); err != nil {
				t.Fatal(err)
			}
			return out
		}
		one, two := run(1), run(2)
		for i := range one {
			if !slices.Equal(one[i], two[i]) {
				t.Errorf("bf16 %v: result %d differs between one thread and two", bf, i)
			}
		}
		ws := &dense.DeepFMWorkspace{Workspace: dense.Workspace{BF16: bf}}
		for lo := 0; lo < 512; lo += 37 {
			hi := min(512, lo+37)
			logits, err := m.Forward(p, e[lo*416:hi*416], lin[lo*26:hi*26], hi-lo, ws)
			if err != nil || !slices.Equal(logits, one[len(p)][lo:hi]) {
				t.Errorf("bf16 %v: samples %d to %d have other logits alone, %v", bf, lo, hi, err)
			}
		}
	}
}

func TestUpdaterIsTheOptimizer(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 7))
	adagrad, err := optim.NewAdagrad(0.05, 0.1, 0.001)
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{40_000, 3, 16_384}
	p, want := [][]float32{draw(r, 40_000), draw(r, 3), draw(r, 16_384)}, [][]float32{}
	var slots [][]float32
	for _, x := range p {
		want = append(want, slices.Clone(x))
		s := make([]float32, adagrad.SlotSize(len(x)))
		adagrad.InitSlots(s)
		slots = append(slots, s)
	}
	u, err := dense.NewUpdater(adagrad, sizes...)
	if err != nil {
		t.Fatal(err)
	}
	pool := partest.New(t, 2)
	for step := range int64(3) {
		g := [][]float32{draw(r, 40_000), draw(r, 3), draw(r, 16_384)}
		at := optim.Step{GlobalStep: step}
		if err := u.Apply(p, g, at, []*par.Pool{pool, nil}[step%2]); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			adagrad.Update(want[i], slots[i], g[i], at)
			if !slices.Equal(want[i], p[i]) {
				t.Errorf("step %d: parameter %d differs", step, i)
			}
		}
	}
	if err := u.Apply(p[:2], p[:2], optim.Step{}, nil); err == nil {
		t.Error("two parameters for three accepted")
	}
	if err := u.Apply(p, [][]float32{p[0], p[1], p[1]}, optim.Step{}, nil); err == nil {
		t.Error("a short gradient accepted")
	}
}

func TestDeepFMRefusals(t *testing.T) {
	if _, err := dense.NewDeepFM(0, 4); err == nil {
		t.Error("no fields accepted")
	}
	if _, err := dense.NewDeepFM(1<<12, 1<<12); err == nil {
		t.Error("2^24 inputs accepted")
	}
	r := rand.New(rand.NewPCG(8, 7))
	m := deepFM(t, 2, 3, 4)
	p, e, lin := params(r, m.Tower().Layers()), draw(r, 12), draw(r, 4)
	var ws dense.DeepFMWorkspace
	forward := func(p [][]float32, e, lin []float32) error {
		_, err := m.Forward(p, e, lin, 2, &dense.DeepFMWorkspace{})
		return err
	}
	fresh := m.Backward(p, &dense.DeepFMWorkspace{}, nil, like(p), nil)
	frozen, err := m.Freeze(p, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := frozen.Forward(e, lin, 2, &ws); err != nil {
		t.Fatal(err)
	}
	afterScoring := m.Backward(p, &ws, make([]float32, 2), like(p), nil)
	_, shortScore := frozen.Forward(e[:5], nil, 2, &ws)
	_, freeze := m.Freeze(p[:1], false, nil)
	if _, err := m.Forward(p, e, lin, 2, &ws); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"params":        {forward(p[:3], e, lin), "3 parameters for 2 layers"},
		"embeddings":    {forward(p, e[:11], lin), "got 11 floats"},
		"linear":        {forward(p, e, lin[:3]), "3 first-order weights"},
		"fresh":         {fresh, "no forward pass"},
		"after scoring": {afterScoring, "no forward pass"},
		"short score":   {shortScore, "got 5 floats"},
		"freeze":        {freeze, "1 parameters"},
		"dlogits":       {m.Backward(p, &ws, make([]float32, 1), like(p), nil), "1 gradients for 2 samples"},
		"demb":          {m.Backward(p, &ws, make([]float32, 2), like(p), e[:4]), "room for 4"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v", name, tc.err)
		}
	}
}

func TestDeepFMDoesNotAllocate(t *testing.T) {
	s := newStep(t, deepFM(t, 26, 16, 64, 32), 64, 2, false)
	if n := testing.AllocsPerRun(10, func() { s.train(t) }); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

// step is a training step on drawn data.
type step struct {
	m              *dense.DeepFM
	ws             dense.DeepFMWorkspace
	p, grads       [][]float32
	e, lin, de     []float32
	labels, d      []float32
	u              *dense.Updater
	batch, threads int
}

func newStep(t testing.TB, m *dense.DeepFM, batch, n int, bf bool) *step {
	t.Helper()
	r := rand.New(rand.NewPCG(8, 7))
	layers := m.Tower().Layers()
	s := &step{m: m, batch: batch, threads: n, p: params(r, layers)}
	s.ws.Pool, s.ws.BF16 = partest.New(t, n), bf
	s.grads = like(s.p)
	in := m.Tower().In()
	s.e, s.lin, s.de = draw(r, batch*in), draw(r, batch*in/16), make([]float32, batch*in)
	for i := range s.e {
		s.e[i] *= 0.1
	}
	s.labels, s.d = make([]float32, batch), make([]float32, batch)
	for i := range s.labels {
		s.labels[i] = float32(i % 2)
	}
	adagrad, err := optim.NewAdagrad(0.001, 0.1, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, p := range m.Params() {
		sizes = append(sizes, p.Size())
	}
	if s.u, err = dense.NewUpdater(adagrad, sizes...); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *step) train(t testing.TB) {
	logits, err := s.m.Forward(s.p, s.e, s.lin, s.batch, &s.ws)
	if err != nil {
		t.Fatal(err)
	}
	dense.SigmoidCrossEntropy(logits, s.labels, s.d)
	if err := s.m.Backward(s.p, &s.ws, s.d, s.grads, s.de); err != nil {
		t.Fatal(err)
	}
	if err := s.u.Apply(s.p, s.grads, optim.Step{}, s.ws.Pool); err != nil {
		t.Fatal(err)
	}
}

// report gives samples and operations of the tower's products per second, and their part
// of what the multiply-adders could do at the same time of day.
func (s *step) report(b *testing.B, perSample float64, bf bool) {
	rate := float64(s.batch) * float64(b.N) / b.Elapsed().Seconds()
	ceiling := gemm.Ceiling
	if bf {
		ceiling = gemm.CeilingBF16
	}
	gflops := rate * perSample / 1e9
	b.ReportMetric(rate, "samples/s")
	b.ReportMetric(gflops, "GFLOP/s")
	b.ReportMetric(100*gflops/ceiling(s.threads, 100*time.Millisecond), "%ceiling")
}

func modes(b *testing.B, run func(b *testing.B, n int, bf bool)) {
	for _, n := range []int{1, 2} {
		for _, bf := range []bool{false, true} {
			b.Run(fmt.Sprintf("threads%d/%s", n, map[bool]string{false: "fp32", true: "bf16"}[bf]), func(b *testing.B) { run(b, n, bf) })
		}
	}
}

// 26 fields of 16, 1024-256-32, batch 512, adagrad; rows come and go elsewhere.
func BenchmarkDeepFMTrain(b *testing.B) {
	modes(b, func(b *testing.B, n int, bf bool) {
		s := newStep(b, deepFM(b, 26, 16, 1024, 256, 32), 512, n, bf)
		for b.Loop() {
			s.train(b)
		}
		_, both := s.m.Tower().FLOPs()
		s.report(b, both, bf)
	})
}

func BenchmarkDeepFMScore(b *testing.B) {
	modes(b, func(b *testing.B, n int, bf bool) {
		s := newStep(b, deepFM(b, 26, 16, 1024, 256, 32), 512, n, bf)
		frozen, err := s.m.Freeze(s.p, bf, s.ws.Pool)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			logits, err := frozen.Forward(s.e, s.lin, s.batch, &s.ws)
			if err != nil {
				b.Fatal(err)
			}
			for i, z := range logits {
				s.d[i] = dense.Sigmoid(z)
			}
		}
		forward, _ := s.m.Tower().FLOPs()
		s.report(b, forward, bf)
	})
}

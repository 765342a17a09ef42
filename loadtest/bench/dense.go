package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/monolith-go/monolith/kernels/dense"
	"github.com/monolith-go/monolith/kernels/gemm"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/kernels/table"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// passTime is about how long one pass of a kernel takes.
const passTime = time.Second

// threads are those that kernels and their peers may use.
func threads() int { return runtime.GOMAXPROCS(0) }

// peerRate makes a pass of a peer's work: n things of a size that takes about passTime.
func peerRate(p *peers.Peer, what string, n int) Pass {
	return func(context.Context) ([]float64, error) {
		for {
			s, err := p.Seconds(what, n)
			if err != nil {
				return nil, err
			}
			if s > passTime.Seconds()/4 {
				return []float64{float64(n) / s}, nil
			}
			n *= 4
		}
	}
}

// missing turns a peer that is not installed, or too slow, into none, and says so.
func (r *Runner) missing(err error) error {
	if errors.Is(err, peers.ErrMissing) || errors.Is(err, peers.ErrSlow) {
		r.say("  %v", err)
		return nil
	}
	return err
}

// share is a pass of work as a part of a ceiling that is measured right before.
func share(ceiling func() float64, work func(context.Context) (float64, error)) Pass {
	return func(ctx context.Context) ([]float64, error) {
		most := ceiling()
		got, err := work(ctx)
		if err != nil {
			return nil, err
		}
		return []float64{got, got / most}, nil
	}
}

// repeat counts how often a second work runs once in passTime.
func repeat(ctx context.Context, work func() error) (perSecond float64, err error) {
	began := time.Now()
	for n := 1; ; n++ {
		if err := work(); err != nil {
			return 0, err
		}
		if took := time.Since(began); took >= passTime {
			return float64(n) / took.Seconds(), ctx.Err()
		}
	}
}

// Gemm measures the matrix products of a DeepFM tower at batch 512, and a large one.
func Gemm() Benchmark {
	return Benchmark{Name: "gemm", About: "float32 and bfloat16 matrix products, against this processor's multiply-add ceiling and torch.mm", Run: func(ctx context.Context, r *Runner) (err error) {
		pool, err := par.New(threads())
		if err != nil {
			return err
		}
		defer pool.Close()
		mm := gemm.Workspace{Pool: pool}
		for _, s := range []struct{ m, n, k int }{{512, 1024, 416}, {512, 256, 1024}, {1024, 1024, 1024}, {4096, 1024, 1024}} {
			p, perr := peers.Torch(ctx, "gemm", s.m, s.n, s.k)
			if err := r.missing(perr); err != nil {
				return err
			}
			a, b, c := gemm.Of(random(s.m*s.k), s.m, s.k), gemm.Of(random(s.k*s.n), s.k, s.n), gemm.Of(make([]float32, s.m*s.n), s.m, s.n)
			flops := 2 * float64(s.m) * float64(s.n) * float64(s.k) / 1e9
			for _, bf16 := range []bool{false, true} {
				kind, ceiling := "float32", func() float64 { return gemm.Ceiling(threads(), passTime/4) }
				if bf16 {
					kind, ceiling = "bfloat16", func() float64 { return gemm.CeilingBF16(threads(), passTime/4) }
				}
				op := gemm.Plain
				op.BF16 = bf16
				cmp := Comparison{
					Name: fmt.Sprintf("gemm/%dx%dx%d %s", s.m, s.n, s.k, kind), Baseline: "torch.mm float32", Warm: true,
					Figures: []Figure{{Unit: "GFLOP/s", Better: Higher}, {Name: "of ceiling", Unit: "", Better: Higher, Least: 0.7}},
					Ours: share(ceiling, func(ctx context.Context) (float64, error) {
						n, err := repeat(ctx, func() error { return mm.Mul(c, a, b, op) })
						return n * flops, err
					}),
				}
				if p != nil {
					rate := peerRate(p, "product", 10)
					cmp.Peer = share(ceiling, func(ctx context.Context) (float64, error) {
						v, err := rate(ctx)
						if err != nil {
							return 0, err
						}
						return v[0] * flops, nil
					})
				}
				if err := r.Compare(ctx, cmp); err != nil {
					return err
				}
			}
			if p != nil {
				if err := p.Close(); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

// deepFM is a model of 26 features of dimension 16 with MLP 1024-256-32, its table of
// embeddings and the adagrad that trains both.
type deepFM struct {
	model         *dense.DeepFM
	params, grads [][]float32
	update        *dense.Updater
	table         *table.Table
	ws            dense.DeepFMWorkspace
	pool          *par.Pool
	emb, demb     []float32
	dlogits       []float32
	batches       []deepFMBatch
	at            int
	parts         []deepFMPart
	rows          rowWork
}

// deepFMPart is what one thread updates: equal ids are always the same thread's.
type deepFMPart struct {
	ids   []int64
	grads []float32
}

type deepFMBatch struct {
	ids    []int64
	labels []float32
}

const (
	fmFields = 26
	fmDim    = 16
	fmVocab  = 1_000_000
)

func newDeepFM(batch int, vocab int64, bf16 bool) (_ *deepFM, err error) {
	m := &deepFM{}
	if m.model, err = dense.NewDeepFM(fmFields, fmDim, 1024, 256, 32); err != nil {
		return nil, err
	}
	adagrad, err := optim.NewAdagrad(0.01, 0.1, 0)
	if err != nil {
		return nil, err
	}
	var sizes []int
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range m.model.Params() {
		v := make([]float32, p.Size())
		for i := range v {
			v[i] = float32(rng.NormFloat64()) * 0.03
		}
		m.params, m.grads, sizes = append(m.params, v), append(m.grads, make([]float32, p.Size())), append(sizes, p.Size())
	}
	if m.update, err = dense.NewUpdater(adagrad, sizes...); err != nil {
		return nil, err
	}
	uniform, err := table.NewRandomUniform(-0.05, 0.05)
	if err != nil {
		return nil, err
	}
	if m.table, err = table.New(table.Config{Name: "features", Dim: fmDim, Optimizer: adagrad, Initializer: uniform}); err != nil {
		return nil, err
	}
	if m.pool, err = par.New(threads()); err != nil {
		return nil, err
	}
	m.ws.Pool, m.ws.BF16 = m.pool, bf16
	m.parts = make([]deepFMPart, threads())
	m.emb, m.demb = make([]float32, batch*fmFields*fmDim), make([]float32, batch*fmFields*fmDim)
	m.dlogits = make([]float32, batch)
	for range 16 {
		b := deepFMBatch{ids: make([]int64, batch*fmFields), labels: make([]float32, batch)}
		for i := range b.ids {
			b.ids[i] = rng.Int64N(vocab)
		}
		for i := range b.labels {
			b.labels[i] = float32(rng.IntN(2))
		}
		m.batches = append(m.batches, b)
	}
	ids, zeros := make([]int64, 4096), make([]float32, 4096*fmDim)
	for from := int64(0); from < vocab; from += int64(len(ids)) { // every row is there before it is timed
		for i := range ids {
			ids[i] = from + int64(i)
		}
		if err := m.table.Optimize(ids, zeros, 1); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *deepFM) next() deepFMBatch {
	m.at++
	return m.batches[m.at%len(m.batches)]
}

// lookup reads the rows of a batch, on all threads.
func (m *deepFM) lookup(ids []int64) error { return m.rows.run(m, ids, false, len(m.rows.found)) }

// apply updates the rows of a batch, each thread those that are its own. lookup has found
// out which these are.
func (m *deepFM) apply(ids []int64) error { return m.rows.run(m, ids, true, len(m.parts)) }

// rowWork is what threads do to the rows of a batch: read a stretch of them, or update a
// part of the ids.
type rowWork struct {
	m      *deepFM
	ids    []int64
	update bool
	found  [16][][]int32 // of each stretch and part, the places of its ids in the batch
	failed []error
}

func (w *rowWork) run(m *deepFM, ids []int64, update bool, n int) error {
	w.m, w.ids, w.update, w.failed = m, ids, update, append(w.failed[:0], make([]error, n)...)
	m.pool.For(n, 1, w)
	return errors.Join(w.failed...)
}

// Do does the stretches or parts lo to hi.
func (w *rowWork) Do(lo, hi int) {
	for i := lo; i < hi; i++ {
		if w.update {
			w.failed[i] = w.apply(i)
		} else {
			w.failed[i] = w.lookup(i)
		}
	}
}

func (w *rowWork) lookup(i int) error {
	n, parts := len(w.found), len(w.m.parts)
	at, to := len(w.ids)*i/n, len(w.ids)*(i+1)/n
	if w.found[i] == nil {
		w.found[i] = make([][]int32, parts)
		for p := range parts {
			w.found[i][p] = make([]int32, 0, len(w.ids)/n+1)
		}
	}
	for p := range parts {
		w.found[i][p] = w.found[i][p][:0]
	}
	for j, id := range w.ids[at:to] {
		p := table.Part(id, parts)
		w.found[i][p] = append(w.found[i][p], int32(at+j))
	}
	_, err := w.m.table.Lookup(w.ids[at:to], w.m.emb[at*fmDim:to*fmDim], nil)
	return err
}

func (w *rowWork) apply(i int) error {
	p := &w.m.parts[i]
	p.ids, p.grads = p.ids[:0], p.grads[:0]
	for _, found := range w.found {
		for _, j := range found[i] {
			p.ids = append(p.ids, w.ids[j])
			p.grads = append(p.grads, w.m.demb[j*fmDim:(j+1)*fmDim]...)
		}
	}
	return w.m.table.Optimize(p.ids, p.grads, 1)
}

// train takes a step on one batch.
func (m *deepFM) train() error {
	b := m.next()
	if err := m.lookup(b.ids); err != nil {
		return err
	}
	logits, err := m.model.Forward(m.params, m.emb, nil, len(b.labels), &m.ws)
	if err != nil {
		return err
	}
	dense.SigmoidCrossEntropy(logits, b.labels, m.dlogits)
	if err := m.model.Backward(m.params, &m.ws, m.dlogits, m.grads, m.demb); err != nil {
		return err
	}
	if err := m.apply(b.ids); err != nil {
		return err
	}
	return m.update.Apply(m.params, m.grads, optim.Step{}, m.pool)
}

// score looks one batch up and scores it.
func (m *deepFM) score(f *dense.FrozenDeepFM) error {
	b := m.next()
	if err := m.lookup(b.ids); err != nil {
		return err
	}
	logits, err := f.Forward(m.emb, nil, len(b.labels), &m.ws)
	if err != nil {
		return err
	}
	for i, x := range logits {
		logits[i] = dense.Sigmoid(x)
	}
	return nil
}

// DeepFMTrain and DeepFMScore measure the model whole: rows looked up and, in training,
// updated, too. The ceiling is what the multiply-adders give for the tower's products
// alone.
func DeepFMTrain() Benchmark {
	return deepFMBenchmark("deepfm-train", "DeepFM 26x16, MLP 1024-256-32, trained with adagrad, against torch", "train", 20)
}

// DeepFMScore is DeepFMTrain's counterpart for scoring.
func DeepFMScore() Benchmark {
	return deepFMBenchmark("deepfm-score", "the same model scored, against torch", "score", 0)
}

func deepFMBenchmark(name, about, what string, target float64) Benchmark {
	return Benchmark{Name: name, About: about, Run: func(ctx context.Context, r *Runner) error {
		for _, batch := range []int{32, 512, 4096} {
			p, perr := peers.Torch(ctx, "deepfm", batch)
			if err := r.missing(perr); err != nil {
				return err
			}
			for _, bf16 := range []bool{false, true} {
				if err := r.deepFM(ctx, name, what, batch, bf16, target, p); err != nil {
					return err
				}
			}
			if p != nil {
				if err := p.Close(); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func (r *Runner) deepFM(ctx context.Context, name, what string, batch int, bf16 bool, target float64, p *peers.Peer) error {
	m, err := newDeepFM(batch, fmVocab, bf16)
	if err != nil {
		return err
	}
	defer m.pool.Close()
	forward, both := m.model.Tower().FLOPs()
	step, flops := m.train, both
	if what == "score" {
		f, err := m.model.Freeze(m.params, bf16, m.pool)
		if err != nil {
			return err
		}
		step, flops = func() error { return m.score(f) }, forward
	}
	kind, ceiling := "float32", func() float64 { return gemm.Ceiling(threads(), passTime/4) * 1e9 / flops }
	if bf16 {
		kind, ceiling = "bfloat16", func() float64 { return gemm.CeilingBF16(threads(), passTime/4) * 1e9 / flops }
	}
	c := Comparison{
		Name: fmt.Sprintf("%s/batch=%d %s", name, batch, kind), Baseline: "torch float32", Warm: true,
		Figures: []Figure{{Unit: "samples/s", Better: Higher}, {Name: "of ceiling", Unit: "", Better: Higher}},
		Ours: share(ceiling, func(ctx context.Context) (float64, error) {
			n, err := repeat(ctx, step)
			return n * float64(batch), err
		}),
	}
	if batch == 512 {
		c.Figures[0].Target, c.Figures[1].Least = target, 0.7
	}
	if p != nil {
		rate := peerRate(p, what, 4*batch)
		c.Peer = share(ceiling, func(ctx context.Context) (float64, error) {
			v, err := rate(ctx)
			if err != nil {
				return 0, err
			}
			return v[0], nil
		})
	}
	r.sayDistance()
	return r.Compare(ctx, c)
}

func random(n int) []float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	v := make([]float32, n)
	for i := range v {
		v[i] = rng.Float32() - 0.5
	}
	return v
}

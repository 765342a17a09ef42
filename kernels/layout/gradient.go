package layout

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Gradient takes the gradients of the tensors, in the order and sizes of
// [Plan.Forward], back to the rows: it returns buffers like rows.Embeddings, in dst's
// memory where that is large enough. A row that no output reads gets zeros.
//
// SUM passes a sample's gradient to each of its ids, MEAN passes it divided by their
// number, FIRSTN passes position i's to id i. Slices that several outputs read, and ids
// that repeat, add up; outputs come in the order of their names. A shared row receives
// the sum over all samples, which are added first and in order.
//
// On an error dst is not written.
func (p *Plan) Gradient(dst [][]float32, rows *Rows, grads [][]float32, r Runner) ([][]float32, error) {
	w := p.takeWork()
	defer p.giveWork(w)
	batch, err := p.check(w, rows, rows.Embeddings)
	if err != nil {
		return nil, err
	}
	if len(grads) != len(p.tensors) {
		return nil, fmt.Errorf("layout: %d gradients for %d tensors", len(grads), len(p.tensors))
	}
	for i, t := range p.tensors {
		if err := t.fits(p, batch); err != nil {
			return nil, err
		}
		if len(grads[i]) != batch*t.sample {
			return nil, fmt.Errorf("layout: the gradient of tensor %d (output %q) has %d floats: %d samples of %d make %d", i, p.outputs[t.output].name, len(grads[i]), batch, t.sample, batch*t.sample)
		}
	}
	if cap(dst) < len(rows.Embeddings) {
		dst = append(make([][]float32, 0, len(rows.Embeddings)), dst[:cap(dst)]...)
	}
	dst = dst[:len(rows.Embeddings)]
	for i, e := range rows.Embeddings {
		dst[i] = grow(dst[i], len(e))
	}
	w.clear.run(r, len(dst), dst, func(dst [][]float32, i int) { clear(dst[i]) })
	if err := p.cutBlocks(w, rows, dst); err != nil {
		return nil, err
	}
	// Features that keep apart, which is what Shard makes, can go side by side: each float
	// receives its terms in the same order whoever adds them. Foreign offsets that overlap
	// are added by one goroutine.
	if len(w.scratch) < len(p.features) {
		w.scratch = make([][]float32, len(p.features))
	}
	for i := range w.requests {
		q := &w.requests[i]
		one := r
		if !q.apart {
			one = nil
		}
		w.spread.run(one, len(p.features), spreading{p, w, q, grads}, spreading.feature)
	}
	return dst, nil
}

// spreading is what the features of one request's Gradient have in common.
type spreading struct {
	p     *Plan
	w     *work
	q     *request
	grads [][]float32
}

func (x spreading) feature(f int) { x.p.gradient(x.w, x.q, f, x.grads) }

// gradient adds everything that feature f's rows receive.
func (p *Plan) gradient(w *work, q *request, f int, grads [][]float32) {
	scratch := w.scratch[f]
	defer func() { w.scratch[f] = scratch }()
	feature := &p.features[f]
	for _, u := range feature.uses {
		size := p.tensors[u.tensor].sample
		data := grads[u.tensor][q.sample*size : (q.sample+q.batch)*size]
		if q.nfl[f]&SharedBit != 0 {
			words := q.row(f, 0)
			if len(words) == 0 {
				continue
			}
			scratch = q.sumSamples(scratch, data, size, len(words), u)
			u.step, u.at = u.end-u.start, 0
			scratch = q.spread(scratch, scratch, words, feature, u)
			continue
		}
		for s := range q.batch {
			scratch = q.spread(data[s*size+u.at:], scratch, q.row(f, s), feature, u)
		}
	}
}

// spread adds the gradient g of one sample's cell to the rows that words name. What it
// needs to divide lies in scratch, which it returns; g may be at scratch's beginning.
func (q *request) spread(g, scratch []float32, words []uint64, f *feature, u use) []float32 {
	if len(words) == 0 {
		return scratch
	}
	width := u.end - u.start
	switch f.Pooling {
	case FirstN:
		for i, word := range words[:min(len(words), u.positions)] {
			add(q.at(word, u), g[i*u.step:][:width])
		}
		return scratch
	case Mean:
		if n := float32(len(words)); n != 1 {
			scratch = grow(scratch, width)
			for i, v := range g[:width] {
				scratch[i] = v / n
			}
			g = scratch
		}
	}
	g = g[:width]
	for _, word := range words {
		add(q.at(word, u), g)
	}
	return scratch
}

// sumSamples adds the cells of all samples, as many positions as there are ids, into
// scratch, position after position.
func (q *request) sumSamples(scratch, data []float32, size, ids int, u use) []float32 {
	n, width := min(ids, u.positions), u.end-u.start
	scratch = grow(scratch, n*width)
	clear(scratch)
	for s := range q.batch {
		cell := data[s*size+u.at:]
		for i := range n {
			vec.Add(cell[i*u.step:][:width], scratch[i*width:])
		}
	}
	return scratch
}

package layout

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/vec"
)

// Tensor is one dense result: Data holds Shape row by row, the batch first.
type Tensor struct {
	Output string
	Shape  []int
	Data   []float32
}

// Forward pools rows and lays them out: it returns the tensors of all outputs, in the
// order of their names and then of their slices, in dst's memory where that is large
// enough. A sample without ids of a feature gets zeros. Ids that repeat count each time.
//
// Unshared slices of ADDN add row by row into the output; a shared one is pooled first,
// and overwrites if it is the first slice: the original's order of additions.
//
// On an error dst is not written. Forward may run many times at once on one plan.
func (p *Plan) Forward(dst []Tensor, rows *Rows, r Runner) ([]Tensor, error) {
	w := p.takeWork()
	defer p.giveWork(w)
	batch, err := p.check(w, rows, rows.Embeddings)
	if err != nil {
		return nil, err
	}
	for _, t := range p.tensors {
		if err := t.fits(p, batch); err != nil {
			return nil, err
		}
	}
	if cap(dst) < len(p.tensors) {
		dst = append(make([]Tensor, 0, len(p.tensors)), dst...)
	}
	dst = dst[:len(p.tensors)]
	for i, t := range p.tensors {
		d := &dst[i]
		d.Output = p.outputs[t.output].name
		d.Shape = append(d.Shape[:0], t.shape...)
		d.Shape[0] = batch
		d.Data = grow(d.Data, batch*t.sample)
	}
	for i := range w.requests {
		q := &w.requests[i]
		p.poolShared(w, q, r)
		tasks := 0
		for i := range p.outputs {
			tasks += p.outputs[i].pieces(q.batch)
		}
		run(r, tasks, func(task int) {
			o := p.outputs
			for ; task >= o[0].pieces(q.batch); o = o[1:] {
				task -= o[0].pieces(q.batch)
			}
			n := o[0].pieces(q.batch)
			p.forward(dst, w, q, &o[0], task*q.batch/n, (task+1)*q.batch/n)
		})
	}
	return dst, nil
}

// fits reports a batch that a tensor's fixed first dimension does not allow.
func (t *tensor) fits(p *Plan, batch int) error {
	if t.shape[0] != -1 && t.shape[0] != batch {
		return fmt.Errorf("layout: output %q has shape %v, and the batch has %d samples: say -1 for any batch", p.outputs[t.output].name, t.shape, batch)
	}
	return nil
}

// pieces is how many pieces the samples of an output are cut into: what a piece writes
// stays in a core's cache while slice after slice is put into it, and a few outputs keep
// several workers busy.
func (o *output) pieces(batch int) int {
	const floats, most = 32 << 10, 256
	samples := min(max(floats/o.size, 8), most, max(batch/4, 16))
	return max(1, (batch+samples-1)/samples)
}

// poolShared pools, once, every slice that all samples of a request share.
func (p *Plan) poolShared(w *work, q *request, r Runner) {
	any := false
	for _, word := range q.nfl[:len(p.features)] {
		any = any || word&SharedBit != 0
	}
	if !any {
		return
	}
	w.cells = grow(w.cells, p.cells)
	run(r, len(p.features), func(i int) {
		f := &p.features[i]
		if q.nfl[i]&SharedBit == 0 {
			return
		}
		for _, u := range f.uses {
			cell := w.cell(u)
			clear(cell)
			u.step = u.end - u.start
			q.pool(cell, q.row(i, 0), f, u)
		}
	})
}

// cell is the shared value of one slice, position after position.
func (w *work) cell(u use) []float32 {
	return w.cells[u.cell : u.cell+u.positions*(u.end-u.start)]
}

// forward computes samples lo to hi of one output.
func (p *Plan) forward(dst []Tensor, w *work, q *request, o *output, lo, hi int) {
	for _, u := range o.uses {
		f := &p.features[u.feature]
		size := p.tensors[u.tensor].sample
		data := dst[u.tensor].Data[(q.sample+lo)*size : (q.sample+hi)*size]
		if u.first || o.typ == None {
			clear(data)
		}
		if q.nfl[u.feature]&SharedBit == 0 {
			for s := lo; s < hi; s++ {
				q.pool(data[u.at:], q.row(u.feature, s), f, u)
				data = data[size:]
			}
			continue
		}
		width, cell := u.end-u.start, w.cell(u)
		for ; len(data) > 0; data = data[size:] {
			if o.typ == AddN && !u.first {
				add(data[:size], cell)
				continue
			}
			for i := range u.positions {
				copy(data[u.at+i*u.step:][:width], cell[i*width:])
			}
		}
	}
}

// pool adds (or, for FirstN, copies) columns of the rows that words name to y.
func (q *request) pool(y []float32, words []uint64, f *feature, u use) {
	width := u.end - u.start
	switch f.Pooling {
	case Sum:
		y = y[:width]
		for _, word := range words {
			add(y, q.at(word, u))
		}
	case Mean:
		y = y[:width]
		if len(words) == 1 {
			add(y, q.at(words[0], u))
			return
		}
		n := float32(len(words))
		for _, word := range words {
			for i, v := range q.at(word, u)[:len(y)] {
				y[i] += v / n
			}
		}
	case FirstN:
		for i, word := range words[:min(len(words), u.positions)] {
			copy(y[i*u.step:][:width], q.at(word, u))
		}
	}
}

// at returns the columns of the row that a checked word names.
func (q *request) at(word uint64, u use) []float32 {
	i := int(uint32(word))
	return q.blocks[word>>32][i+u.start : i+u.end]
}

// add adds x to y, which are equally long.
func add(y, x []float32) {
	if len(y) >= 8 {
		vec.Add(x, y)
		return
	}
	for i, v := range x[:len(y)] {
		y[i] += v
	}
}

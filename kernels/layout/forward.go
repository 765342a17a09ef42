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
// and overwrites if it is the first slice: the original's order of additions. With rows.Once what is
// shared altogether has one row, and the Shape of one sample.
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
		if rows.Once && len(w.requests) == 1 && w.requests[0].shares(p, i) {
			d.Shape[0] = 1
		}
		d.Data = grow(d.Data, d.Shape[0]*t.sample)
	}
	for i := range w.requests {
		q := &w.requests[i]
		p.poolShared(w, q, r)
		tasks := 0
		for i := range p.outputs {
			tasks += p.outputs[i].pieces(q.batch)
		}
		w.forward.run(r, tasks, forwarding{p, dst, w, q}, forwarding.piece)
	}
	return dst, nil
}

// shares says whether all samples share all of a tensor.
func (q *request) shares(p *Plan, tensor int) bool {
	for _, u := range p.outputs[p.tensors[tensor].output].uses {
		if u.tensor == tensor && q.nfl[u.feature]&SharedBit == 0 {
			return false
		}
	}
	return q.batch > 0
}

// forwarding is what the pieces of one request's Forward have in common.
type forwarding struct {
	p   *Plan
	dst []Tensor
	w   *work
	q   *request
}

func (x forwarding) piece(task int) {
	o, batch := x.p.outputs, x.q.batch
	for ; task >= o[0].pieces(batch); o = o[1:] {
		task -= o[0].pieces(batch)
	}
	n := o[0].pieces(batch)
	x.p.forward(x.dst, x.w, x.q, &o[0], task*batch/n, (task+1)*batch/n)
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
	w.forward.run(r, len(p.features), forwarding{p: p, w: w, q: q}, forwarding.share)
}

func (x forwarding) share(i int) {
	f := &x.p.features[i]
	if x.q.nfl[i]&SharedBit == 0 {
		return
	}
	for _, u := range f.uses {
		u.step = u.end - u.start
		x.q.pool(x.w.cell(u), x.q.row(i, 0), f, u, true)
	}
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
		lo, hi := lo, hi
		if dst[u.tensor].Shape[0] < q.batch { // one row, of the first sample's piece
			lo, hi = min(lo, 1), min(hi, 1)
		}
		data := dst[u.tensor].Data[(q.sample+lo)*size : (q.sample+hi)*size]
		if q.nfl[u.feature]&SharedBit == 0 {
			q.poolEach(data, size, lo, hi, f, u, o.typ != AddN || u.first)
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

// poolEach pools samples lo to hi of one use into data, in which a sample has size floats.
// Cells are fresh where nothing was added to them yet.
func (q *request) poolEach(data []float32, size, lo, hi int, f *feature, u use, fresh bool) {
	alone := fresh && f.Pooling != FirstN
	for ends := q.rows[int(q.nfl[u.feature])+lo:]; lo < hi; lo, ends = lo+1, ends[1:] {
		words := q.words[ends[0]:ends[1]]
		if alone && len(words) == 1 { // as nearly all are
			copy(data[u.at:u.at+u.end-u.start], q.at(words[0], u))
		} else {
			q.pool(data[u.at:], words, f, u, fresh)
		}
		data = data[size:]
	}
}

// pool adds (or, for FirstN, copies) columns of the rows that words name to y. What a fresh
// cell holds counts for nothing: one row is copied to it, so that -0 stays -0.
func (q *request) pool(y []float32, words []uint64, f *feature, u use, fresh bool) {
	width := u.end - u.start
	if f.Pooling == FirstN {
		for i := range u.positions {
			cell := y[i*u.step:][:width]
			if i < len(words) {
				copy(cell, q.at(words[i], u))
			} else {
				clear(cell)
			}
		}
		return
	}
	y = y[:width]
	if fresh && len(words) == 1 {
		copy(y, q.at(words[0], u))
		return
	}
	if fresh {
		clear(y)
	}
	if f.Pooling == Mean && len(words) > 1 {
		n := float32(len(words))
		for _, word := range words {
			for i, v := range q.at(word, u)[:width] {
				y[i] += v / n
			}
		}
		return
	}
	for _, word := range words {
		add(y, q.at(word, u))
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

package runtime

import (
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/modelspec/modelspectest"
	"github.com/monolith-go/monolith/kernels/densetest"
)

// plain is a step as the trainer had it before there were batches: rows are grouped by
// tables in Go maps, in order of appearance, and copied to and fro one by one.
type plain struct {
	tower  *densetest.Tower
	feats  []struct{ table, dim, at int }
	names  []string
	dims   []int
	shards int
	fids   []int64
	labels []float32
	uniq   []unique
	grads  [][]float32
}

// unique is the set of a table's rows that the batch touches, in order of appearance.
type unique struct {
	ids     []int64
	at      map[int64]int
	rows    []float32
	grads   []float32
	byShard [][]int
}

func newPlain(t *testing.T, spec *model.ModelSpec, shards int) *plain {
	t.Helper()
	tower, err := modelspectest.NewTower(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{tower: tower, shards: shards}
	byName := map[string]int{}
	for i, tab := range spec.Tables {
		byName[tab.Name] = i
		p.names, p.dims = append(p.names, tab.Name), append(p.dims, int(tab.Dim))
		p.uniq = append(p.uniq, unique{at: map[int64]int{}, byShard: make([][]int, shards)})
	}
	at := 0
	for _, f := range spec.Features {
		i := byName[f.Table]
		p.feats = append(p.feats, struct{ table, dim, at int }{i, p.dims[i], at})
		at += p.dims[i]
	}
	for _, v := range modelspec.Variables(spec) {
		p.grads = append(p.grads, make([]float32, v.Size))
	}
	return p
}

func (p *plain) load(s samples) {
	for i, ids := range s.ids {
		p.fids, p.labels = append(p.fids, ids...), append(p.labels, s.labels[i])
		for f, fid := range ids {
			u := &p.uniq[p.feats[f].table]
			if _, ok := u.at[fid]; ok {
				continue
			}
			u.at[fid] = len(u.ids)
			shard := modelspec.ShardOf(fid, p.shards)
			u.byShard[shard] = append(u.byShard[shard], len(u.ids))
			u.ids = append(u.ids, fid)
		}
	}
	for t := range p.uniq {
		u := &p.uniq[t]
		for _, id := range u.ids {
			u.rows = append(u.rows, rowOf(id, p.dims[t])...)
		}
		u.grads = make([]float32, len(u.rows))
	}
}

func (p *plain) learn(t *testing.T, params [][]float32) (loss float64, scores []float32) {
	t.Helper()
	n, in := len(p.labels), p.tower.In()
	x, dx := make([]float32, n*in), make([]float32, n*in)
	each := func(do func(u *unique, row, cell, dim int)) {
		for b := range n {
			for f, ft := range p.feats {
				u := &p.uniq[ft.table]
				do(u, u.at[p.fids[b*len(p.feats)+f]]*ft.dim, b*in+ft.at, ft.dim)
			}
		}
	}
	each(func(u *unique, row, cell, dim int) { copy(x[cell:], u.rows[row:row+dim]) })
	var ws densetest.Workspace
	logits, err := p.tower.Forward(params, x, n, &ws)
	if err != nil {
		t.Fatal(err)
	}
	for _, z := range logits {
		scores = append(scores, densetest.Sigmoid(z))
	}
	dlogits := make([]float32, n)
	loss = float64(densetest.SigmoidCrossEntropy(logits, p.labels, dlogits)) * float64(n)
	for i := range dlogits {
		dlogits[i] *= float32(n)
	}
	if err := p.tower.Backward(params, &ws, dlogits, p.grads, dx); err != nil {
		t.Fatal(err)
	}
	each(func(u *unique, row, cell, dim int) {
		for i := range dim {
			u.grads[row+i] += dx[cell+i]
		}
	})
	return loss, scores
}

// blocks is what a shard was asked for and told, table by table.
func (p *plain) blocks(shard int) (all []Block) {
	for t := range p.uniq {
		u, dim := &p.uniq[t], p.dims[t]
		b := Block{Table: p.names[t], Dim: dim}
		for _, i := range u.byShard[shard] {
			b.IDs = append(b.IDs, u.ids[i])
			b.Rows = append(b.Rows, u.rows[i*dim:(i+1)*dim]...)
			b.Grads = append(b.Grads, u.grads[i*dim:(i+1)*dim]...)
		}
		if len(b.IDs) > 0 {
			all = append(all, b)
		}
	}
	return all
}

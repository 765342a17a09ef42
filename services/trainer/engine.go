package trainer

import (
	"fmt"
	"math"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/dense"
)

// engine is what follows from the model's spec; it is shared and never changes.
type engine struct {
	spec   *model.ModelSpec
	hash   string // of spec
	tower  *dense.Tower
	vars   []modelspec.Variable
	index  map[string]int // variable by name
	feats  []feature
	tables []string
	dims   []int // by table
	shards int
	latest func() time.Time // that a record may be dated; nil: any time
	rules  rules
}

type feature struct{ table, dim, at int } // at: first column of the tower's input

func newEngine(spec *model.ModelSpec, shards, batch int) (*engine, error) {
	if err := modelspec.Trainable(spec); err != nil {
		return nil, err
	}
	tower, err := modelspec.NewTower(spec)
	if err != nil {
		return nil, err
	}
	e := &engine{spec: spec, hash: modelspec.Hash(spec), tower: tower, vars: modelspec.Variables(spec), index: map[string]int{}, shards: shards}
	for i, v := range e.vars {
		e.index[v.Name] = i
	}
	byName := map[string]int{}
	for i, t := range spec.GetTables() {
		byName[t.GetName()] = i
		e.tables = append(e.tables, t.GetName())
		e.dims = append(e.dims, int(t.GetDim()))
	}
	at := 0
	for _, f := range spec.GetFeatures() {
		t := byName[f.GetTable()]
		e.feats = append(e.feats, feature{t, e.dims[t], at})
		at += e.dims[t]
	}
	if ids := batch * len(e.feats); ids > rowwire.MaxIDs {
		return nil, fmt.Errorf("a batch of %d records with %d features has more than %d ids: lower --batch", batch, len(e.feats), rowwire.MaxIDs)
	}
	if bytes := modelspec.StepBytes(spec, batch); bytes > modelspec.MaxStepBytes {
		return nil, fmt.Errorf("a step of %d records takes up to %d bytes, %d are sent at once: lower --batch", batch, bytes, modelspec.MaxStepBytes)
	}
	return e, nil
}

// step is the work on one batch. Its buffers are used again for the next one.
type step struct {
	e       *engine
	fids    []int64 // samples x features
	labels  []float32
	bad     []rejected
	newest  int64 // unix seconds of the newest record learnt
	trace   string
	uniq    []unique // by table
	x, dx   []float32
	scores  []float32
	dlogits []float32
	grads   [][]float32 // by variable
	ws      dense.Workspace
}

// unique is the set of a table's rows that the batch touches, in order of appearance.
type unique struct {
	ids     []int64
	at      map[int64]int32
	rows    []float32 // ids x dim
	grads   []float32
	byShard [][]int32 // shard -> positions in ids
}

func (e *engine) newStep() *step {
	s := &step{e: e, uniq: make([]unique, len(e.tables)), grads: make([][]float32, len(e.vars))}
	for i := range s.uniq {
		s.uniq[i].at = map[int64]int32{}
		s.uniq[i].byShard = make([][]int32, e.shards)
	}
	for i, v := range e.vars {
		s.grads[i] = make([]float32, v.Size)
	}
	return s
}

// load parses the records and finds the unique rows.
func (s *step) load(recs []kafka.Record) {
	s.fids, s.labels, s.bad, s.newest, s.trace = s.fids[:0], s.labels[:0], s.bad[:0], 0, ""
	for t := range s.uniq {
		u := &s.uniq[t]
		u.ids = u.ids[:0]
		clear(u.at)
		for i := range u.byShard {
			u.byShard[i] = u.byShard[i][:0]
		}
	}
	fids := make([]int64, len(s.e.feats))
	latest := time.Unix(math.MaxUint32, 0)
	if s.e.latest != nil {
		latest = s.e.latest()
	}
	for _, r := range recs {
		if tp := r.Headers["traceparent"]; s.trace == "" && sampled(tp) {
			s.trace = tp
		}
		smp, err := s.e.rules.parse(s.e.spec, r.Value, fids)
		if err != nil {
			s.bad = append(s.bad, rejected{r, err.Error()})
			continue
		}
		// Rows expire by the time of records, so one that lies about it must not be learnt.
		if r.Time.After(latest) {
			s.bad = append(s.bad, rejected{r, fmt.Sprintf("the record is dated %s, later than %s, the latest that is taken: correct its producer's clock and send it again, or start the trainers with a greater --record-ahead",
				r.Time.UTC().Format(time.RFC3339), latest.UTC().Format(time.RFC3339))})
			continue
		}
		s.newest = max(s.newest, r.Time.Unix())
		s.fids = append(s.fids, smp.fids...)
		s.labels = append(s.labels, smp.label)
		for f, fid := range smp.fids {
			s.uniq[s.e.feats[f].table].add(fid, s.e.shards)
		}
	}
	for t := range s.uniq {
		n := len(s.uniq[t].ids) * s.e.dims[t]
		s.uniq[t].rows = sized(s.uniq[t].rows, n)
		s.uniq[t].grads = sized(s.uniq[t].grads, n)
		clear(s.uniq[t].grads)
	}
}

func (u *unique) add(fid int64, shards int) {
	if _, ok := u.at[fid]; ok {
		return
	}
	i := int32(len(u.ids))
	u.at[fid] = i
	u.ids = append(u.ids, fid)
	shard := modelspec.ShardOf(fid, shards)
	u.byShard[shard] = append(u.byShard[shard], i)
}

// wanted lists what the batch needs of a shard, and the tables it names.
func (s *step) wanted(shard int) (tables []rowwire.TableIDs, which []int) {
	for t := range s.uniq {
		if at := s.uniq[t].byShard[shard]; len(at) > 0 {
			tables = append(tables, rowwire.TableIDs{Table: s.e.tables[t], IDs: s.uniq[t].pick(at)})
			which = append(which, t)
		}
	}
	return tables, which
}

func (u *unique) pick(at []int32) []int64 {
	ids := make([]int64, len(at))
	for i, p := range at {
		ids[i] = u.ids[p]
	}
	return ids
}

// fill takes a shard's rows. Shards may fill at the same time: their rows differ.
func (s *step) fill(shard int, which []int, values [][]float32) error {
	if len(values) != len(which) {
		return fmt.Errorf("shard %d answered %d tables, asked were %d", shard, len(values), len(which))
	}
	for i, t := range which {
		dim, at := s.e.dims[t], s.uniq[t].byShard[shard]
		if len(values[i]) != len(at)*dim {
			return fmt.Errorf("shard %d answered %d values of table %s, due were %d rows of %d", shard, len(values[i]), s.e.tables[t], len(at), dim)
		}
		for j, p := range at {
			copy(s.uniq[t].rows[int(p)*dim:], values[i][j*dim:(j+1)*dim])
		}
	}
	return nil
}

// learn computes predictions, the summed loss and all gradients of the batch.
//
// A gradient is that of the sum of the samples' losses, for rows and dense variables
// alike: under Adagrad, whose steps do not grow with the scale of the gradient, a row
// seen once in a batch then learns as much as it would alone, whatever the batch's size.
func (s *step) learn(params [][]float32) (loss float64, err error) {
	n, in := len(s.labels), s.e.tower.In()
	s.x, s.dx = sized(s.x, n*in), sized(s.dx, n*in)
	for b := range n {
		for f, ft := range s.e.feats {
			u := &s.uniq[ft.table]
			p := int(u.at[s.fids[b*len(s.e.feats)+f]]) * ft.dim
			copy(s.x[b*in+ft.at:], u.rows[p:p+ft.dim])
		}
	}
	logits, err := s.e.tower.Forward(params, s.x, n, &s.ws)
	if err != nil {
		return 0, err
	}
	s.scores, s.dlogits = sized(s.scores, n), sized(s.dlogits, n)
	for i, l := range logits {
		s.scores[i] = dense.Sigmoid(l)
	}
	loss = float64(dense.SigmoidCrossEntropy(logits, s.labels, s.dlogits)) * float64(n)
	for i := range s.dlogits {
		s.dlogits[i] *= float32(n) // of the sum rather than the mean
	}
	if err := s.e.tower.Backward(params, &s.ws, s.dlogits, s.grads, s.dx); err != nil {
		return 0, err
	}
	for b := range n {
		for f, ft := range s.e.feats {
			u := &s.uniq[ft.table]
			p := int(u.at[s.fids[b*len(s.e.feats)+f]]) * ft.dim
			g, d := u.grads[p:p+ft.dim], s.dx[b*in+ft.at:]
			for i := range g {
				g[i] += d[i]
			}
		}
	}
	return loss, nil
}

// learnt puts a shard's share of the gradients into r; without samples there is none.
func (s *step) learnt(shard int, r *rowwire.ApplyRequest) {
	if len(s.labels) == 0 {
		return
	}
	tables, which := s.wanted(shard)
	for i, t := range which {
		dim := s.e.dims[t]
		grads := make([]float32, 0, len(tables[i].IDs)*dim)
		for _, p := range s.uniq[t].byShard[shard] {
			grads = append(grads, s.uniq[t].grads[int(p)*dim:(int(p)+1)*dim]...)
		}
		r.Tables = append(r.Tables, rowwire.TableGrads{Table: tables[i].Table, IDs: tables[i].IDs, Grads: grads})
	}
	for i, v := range s.e.vars {
		if modelspec.VariableShard(i, s.e.shards) == shard {
			r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: s.grads[i]})
		}
	}
}

func sized(b []float32, n int) []float32 {
	if cap(b) < n {
		return make([]float32, n)
	}
	return b[:n]
}

// sampled says whether a W3C traceparent asks for spans.
func sampled(traceparent string) bool {
	n := len(traceparent)
	return n >= 55 && (traceparent[n-1]-'0')&1 == 1
}

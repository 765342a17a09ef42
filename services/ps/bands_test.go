package ps

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// pupil trains deep on shards as a trainer does.
type pupil struct {
	t      *testing.T
	e      *runtime.Engine
	shards []*proc
	values [][]float32 // of the variables, as fetched before the last step
	grads  [][]float32 // of the last step
	step   int
}

func (w *world) pupil(shards int) *pupil {
	w.t.Helper()
	e, err := runtime.New(pstest.Deep(), shards, 8)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &pupil{t: w.t.(*testing.T), e: e}
	for i := range shards {
		s.shards = append(s.shards, w.start(w.deepConfig(i, shards)))
	}
	return s
}

func (w *world) deepConfig(shard, shards int) Config {
	cfg := w.config()
	cfg.Model, cfg.Shard, cfg.Shards = "deep", shard, shards
	return cfg
}

// fetch asks the shards for all variables, band by band.
func (s *pupil) fetch() [][]float32 {
	s.t.Helper()
	vars := s.e.Variables()
	all := make([][]float32, len(vars))
	for i := range all {
		all[i] = make([]float32, vars[i].Size)
	}
	for i, p := range s.shards {
		for _, b := range modelspec.BandsOf(vars, i, len(s.shards)) {
			d, err := p.Dense(soon(s.t), &rowwire.DenseRequest{Job: job, Shard: uint32(i), Names: []string{b.Name}, At: []uint32{uint32(b.At)}})
			if err != nil || len(d.Tensors) != 1 || len(d.Tensors[0].Values) != b.Size || d.Tensors[0].At != uint32(b.At) {
				s.t.Fatalf("band %+v: %v", b, err)
			}
			copy(all[b.Variable][b.At:], d.Tensors[0].Values)
		}
	}
	return all
}

// gradients are those of the next batch, whose rows are those that the shards have; what each shard is told is in two
// parts, of rows and of variables.
func (s *pupil) gradients() [][2]*rowwire.ApplyRequest {
	s.t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(s.step)))
	b := s.e.NewBatch()
	for range 8 {
		ids := make([][]int64, 26)
		for f := range ids {
			ids[f] = []int64{modelspec.FID(uint32(f+1), rng.Int64N(5))}
		}
		if err := b.Add(runtime.Sample{IDs: ids, Labels: []float32{float32(rng.IntN(2))}}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		s.t.Fatal(err)
	}
	for i, p := range s.shards {
		for _, block := range b.Blocks(i) {
			r, err := p.Lookup(soon(s.t), &rowwire.LookupRequest{Model: job, Shard: uint32(i), Tables: []rowwire.TableIDs{{Table: block.Table, IDs: block.IDs}}})
			if err != nil {
				s.t.Fatal(err)
			}
			copy(block.Rows, r.Values[0])
		}
	}
	s.values = s.fetch()
	w, err := s.e.Weights(uint64(s.step), s.values)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.e.Train(&runtime.Lane{}, b, w); err != nil {
		s.t.Fatal(err)
	}
	s.grads = b.Dense
	var all [][2]*rowwire.ApplyRequest
	for i := range s.shards {
		r := rowwire.ApplyRequest{Job: job, Shard: uint32(i), Epoch: 1, From: int64(s.step * 8), To: int64(s.step*8 + 8), RecordUnix: 1000, Parts: 2}
		first, second := r, r
		second.Part = 1
		for _, block := range b.Blocks(i) {
			first.Tables = append(first.Tables, rowwire.TableGrads{Table: block.Table, IDs: block.IDs, Grads: block.Grads})
		}
		for k, band := range modelspec.BandsOf(s.e.Variables(), i, len(s.shards)) {
			g := rowwire.NamedTensor{Name: band.Name, At: uint32(band.At), Values: b.Dense[band.Variable][band.At : band.At+band.Size]}
			if k%2 == 0 {
				first.Dense = append(first.Dense, g)
			} else {
				second.Dense = append(second.Dense, g)
			}
		}
		all = append(all, [2]*rowwire.ApplyRequest{&first, &second})
	}
	s.step++
	return all
}

func (s *pupil) learn() {
	s.t.Helper()
	for i, parts := range s.gradients() {
		if r := s.shards[i].teach(parts[0]); r.Applied {
			s.t.Fatal("the first part was applied alone")
		}
		if r := s.shards[i].teach(parts[1]); !r.Applied {
			s.t.Fatal("the last part was not applied")
		}
	}
}

func (w *world) declareDeep() {
	w.append("model", "deep", &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: pstest.Deep()}}})
}

// A model learns the same bits on any number of shards, and each variable what it would learn
// in one piece: Adagrad looks at one number at a time.
func TestBandsLearnTheSameOnAnyShards(t *testing.T) {
	var reference [][]float32
	for _, shards := range []int{1, 2, 3} {
		w := newWorld(t)
		w.declareDeep()
		s := w.pupil(shards)
		if n := len(modelspec.Bands(s.e.Variables())); n != len(s.e.Variables())+2 {
			t.Fatalf("%d variables have %d bands", len(s.e.Variables()), n)
		}
		var want, slots [][]float32 // learnt whole
		o := modelspec.DenseOptimizer(pstest.Deep())
		for _, v := range s.e.Variables() {
			want = append(want, modelspec.InitVariable(pstest.Deep(), v))
			x := make([]float32, o.SlotSize(v.Size))
			o.InitSlots(x)
			slots = append(slots, x)
		}
		for n := range 4 {
			s.learn()
			for i := range want {
				if !slices.Equal(want[i], s.values[i]) {
					t.Fatalf("%d shards: before step %d variable %s is another than if it were in one piece", shards, n, s.e.Variables()[i].Name)
				}
				o.Update(want[i], slots[i], s.grads[i], optim.Step{GlobalStep: int64(n)})
			}
		}
		if got := s.fetch(); reference == nil {
			reference = got
		} else if !slices.EqualFunc(got, reference, slices.Equal[[]float32]) {
			t.Errorf("%d shards learn other variables than one", shards)
		}
		var m *mirror
		for _, p := range s.shards {
			m = p.settled()
		}
		for _, b := range modelspec.Bands(s.e.Variables()) {
			if !slices.Equal(m.dense[band{b.Name, b.At}], reference[b.Variable][b.At:b.At+b.Size]) {
				t.Errorf("%d shards: a follower has other numbers of %s at %d", shards, b.Name, b.At)
			}
		}
	}
}

// A shard that is killed between two parts has learnt nothing of them, and the parts sent
// again to the next one are learnt once.
func TestARestartDropsParts(t *testing.T) {
	w := newWorld(t)
	w.declareDeep()
	s := w.pupil(1)
	s.learn()
	w.save(w.checkpoint(1, 1, 0))
	before := s.fetch()
	parts := s.gradients()[0]
	s.shards[0].teach(parts[0])
	if err := s.shards[0].stop(); err != nil {
		t.Fatal(err)
	}
	p := w.start(w.deepConfig(0, 1))
	s.shards[0] = p
	if _, err := p.Apply(soon(t), parts[1]); rowwire.CodeOf(err) != rowwire.Unavailable || !strings.Contains(err.Error(), "send all parts again") {
		t.Fatalf("the last part alone: %v", err)
	}
	if !slices.EqualFunc(s.fetch(), before, slices.Equal[[]float32]) {
		t.Error("a part that came alone was learnt")
	}
	p.teach(parts[0])
	if !p.teach(parts[1]).Applied {
		t.Error("all parts were not learnt")
	}
	for _, x := range parts {
		if r := p.teach(x); r.Applied || r.Next != 16 {
			t.Errorf("a part that was learnt is learnt again: %+v", r)
		}
	}
	p.sameRows(p.settled())
}

// A group of variables moves by its own optimizer, with slots of its own, through a checkpoint
// and back.
func TestGroupsOfVariablesHaveOptimizers(t *testing.T) {
	w := newWorld(t)
	spec := pstest.Learning()
	spec.Name = "groups"
	spec.Variables = []*model.Group{{Match: "*/bias", Optimizer: &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 3}}}}}
	w.append("model", "groups", &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}})
	cfg := w.config()
	cfg.Model = "groups"
	p := w.start(cfg)
	before, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	r := pstest.Teach(0, 0, 0, 1, 1, 1)
	for _, v := range before.Tensors {
		r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: slices.Repeat([]float32{1}, len(v.Values))})
	}
	p.teach(r)
	after, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range after.Tensors {
		moved := before.Tensors[i].Values[0] - v.Values[0]
		if sgd := moved == 3; sgd != strings.HasSuffix(v.Name, "bias") {
			t.Errorf("%s moved by %g", v.Name, moved)
		}
	}
	c := w.checkpoint(1, 1, 0)
	saved := w.readShard(c, 0)
	if len(saved.Dense["out/bias"].Slots) != 0 || len(saved.Dense["out/kernel"].Slots) == 0 {
		t.Errorf("slots of bias and kernel: %v, %v", saved.Dense["out/bias"].Slots, saved.Dense["out/kernel"].Slots)
	}
	w.save(c)
	hash := p.hash()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if q := w.start(cfg); q.hash() != hash {
		t.Error("the shard came back as another")
	}
}

// A trainer that multiplies in bfloat16 gets what it would make of a kernel, and of others all.
func TestKernelsTravelAsBFloat16(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Model = "learning"
	p := w.start(cfg)
	names := []string{"out/kernel", "out/kernel"}
	d, err := p.Dense(soon(t), &rowwire.DenseRequest{Job: job, Names: names, BF16: []bool{true, false}})
	if err != nil {
		t.Fatal(err)
	}
	half, whole := d.Tensors[0].Values, d.Tensors[1].Values
	for i, x := range whole {
		b := math.Float32bits(x)
		if want := math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff); half[i] != want || half[i] == x {
			t.Errorf("%g comes as %g, want %g", x, half[i], want)
		}
	}
}

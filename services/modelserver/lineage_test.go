package modelserver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// user looks up one user's row as s serves it.
func (s *served) user(id int64) ([]float32, error) {
	c, err := rowwire.Dial(testContext(s.w.t), s.RowsAddr(), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	fid := modelspec.FID(1, id)
	r, err := c.Lookup(testContext(s.w.t), &rowwire.LookupRequest{Model: ranker, Shard: uint32(modelspec.ShardOf(fid, 2)), Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{fid}}}})
	if err != nil {
		return nil, err
	}
	return slices.Clone(r.Values[0]), nil
}

func (s *served) untilUser(id int64, want ...float32) {
	s.w.t.Helper()
	wait.Until(s.w.t, fmt.Sprintf("user %d", id), func() error {
		got, err := s.user(id)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("row %v, want %v", got, want)
		}
		return err
	})
}

// trim forgets deltas before seq, as a full stream does.
func (w *world) trim(before uint64) {
	w.t.Helper()
	var b any = w.bus
	if err := b.(*mem.Bus).Deltas().(interface {
		Trim(ctx context.Context, before uint64) error
	}).Trim(testContext(w.t), before); err != nil {
		w.t.Fatal(err)
	}
}

// The copy of an attempt that was never recorded holds less than the fact of the version
// says, which a later attempt at the same number wrote.
func TestTheFactOfAnotherAttemptSaysNothingAboutThisCopy(t *testing.T) {
	w := newWorld(t)
	x := w.publish(w.learn("user", 1, 1, 3, 1, 1, 1, 1))
	w.export(1, 2, x)
	w.publish(w.learn("user", 1, 4, 3, 44, 44, 44, 44))
	y := w.publish(w.learn("user", 1, 2, 3, 2, 2, 2, 2))
	w.plan(1, 2, job)
	w.cuts[1] = cut{2, y} // the attempt that was recorded
	w.exported(1, y)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	s.untilUser(4, 44, 44, 44, 44)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
}

// The newest export may lie where this host cannot read; its copy beside the configured
// one is taken as soon as it is there.
func TestTheNewestCopyThatCanBeRead(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 1)
	for i := range int64(20) {
		w.publish(w.learn("user", 1, i%20, 3, float32(i), 1, 2, 3))
	}
	last := w.publish(w.learn("user", 1, 4, 3, 44, 44, 44, 44))
	w.trim(last)
	const elsewhere = "/srv/trainer-host/exported_models"
	w.append("training", job, &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{
		Version: 2, ModelDir: elsewhere, SubModels: []string{"entry", "ps_0", "ps_1"}, SyncSeq: last}}})
	w.append("publish", ranker, &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{
		ModelName: ranker, ModelDir: elsewhere, Version: 1, NumPs: 2, Job: job, Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c0", SubModels: map[string]string{"entry": w.path("entry", 1), "ps_0": w.path("ps_0", 1), "ps_1": w.path("ps_1", 1)}}},
	}}})
	s, subs := w.one(2)
	loaded := make(chan error, 1)
	go func() { loaded <- s.load(1, subs...) }()
	wait.Until(t, "the newest export is missed", func() error {
		if n := s.counted(t, "monolith_modelserver_load_total", "failed"); n == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	w.export(2, 2, last) // model-sync's copy arrives
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	s.untilUser(4, 44, 44, 44, 44)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
}

// counted is what a counter with one label says.
func (s *served) counted(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// What a layout offers has no plan, and follows the deltas of the job that exported it.
func TestWithoutAPlanTheExportsOwnJobIsFollowed(t *testing.T) {
	w := newWorld(t)
	cutAt := w.publish(w.learn("user", 1, 1, 3, 1, 1, 1, 1))
	w.export(1, 2, cutAt)
	w.publish(w.learn("user", 1, 3, 3, 3, 3, 3, 3)) // before it is loaded
	w.exported(1, cutAt)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	s.untilUser(3, 3, 3, 3, 3)
	applied := w.applied("c0", "entry")
	w.publish(w.learn("user", 1, 7, 3, 9, 9, 9, 9)) // and after
	s.untilUser(7, 9, 9, 9, 9)
	v := modelspec.Variables(w.spec)[0]
	w.mu.Lock()
	w.dense[v.Name] = slices.Repeat([]float32{0.125}, v.Size)
	w.mu.Unlock()
	applied(w.publish(&delta.Delta{Job: job, Shards: 2, Epoch: 3, Chunks: 1, Dense: []*delta.Variable{{Name: v.Name, Shape: v.Shape, Values: floats(w.dense[v.Name])}}}))
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })

	// A layout's entry moves on while its shards stay, since their rows are kept fresh.
	for number := int64(2); number < 6; number++ {
		last := w.publish(w.learn("user", 1, 8, 3, float32(number), 6, 6, 6))
		w.export(number, 2, last)
		w.exported(number, last)
		models := []tfserving.Model{{Name: ranker + ":entry", BasePath: w.dir + "/entry"}}
		for _, sub := range subs[1:] {
			models = append(models, tfserving.Model{Name: ranker + ":" + sub, BasePath: w.dir + "/" + sub, Policy: tfserving.Policy{Versions: []int64{1}}})
		}
		if _, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: tfserving.Config(models...)}); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the entry's next version", func() error {
			res, err := s.predict.Predict(testContext(t), request(someUsers, someMovies))
			if err != nil {
				t.Fatal(err)
			}
			if v := res.GetModelSpec().GetVersion().GetValue(); v != number {
				return fmt.Errorf("version %d answers, want %d", v, number)
			}
			return s.check([]int64{8, 7}, []int64{1, 2})
		})
	}
	if got := s.versions("ps_1"); !slices.Equal(got, []string{"1 AVAILABLE"}) {
		t.Errorf("the shards are at %v", got)
	}
	wait.Until(t, "old entries go", func() error {
		if got := s.versions("entry"); !slices.Equal(got, []string{"5 AVAILABLE", "4 END", "3 END", "2 END", "1 END"}) {
			return fmt.Errorf("entries %v", got)
		}
		return nil
	})
}

// A job that this installation does not know, or whose deltas are gone, leaves a layout's
// model as it was exported.
func TestWithoutAPlanAStrangersExportIsServedAsItIs(t *testing.T) {
	for name, trimmed := range map[string]bool{"a stranger's": false, "its deltas are gone": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.export(1, 2, 0)
			first := w.publish(rowDelta("user", modelspec.FID(1, 7), 3, 9, 9, 9, 9))
			if trimmed {
				w.exported(1, 0)
				w.trim(w.publish(rowDelta("user", modelspec.FID(1, 7), 3, 9, 9, 9, 9)))
				_ = first
			}
			s, subs := w.one(2)
			s.mustLoad(1, subs...)
			wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
			if !trimmed {
				return
			}
			// The job's next export takes its place.
			w.learn("user", 1, 7, 3, 5, 5, 5, 5)
			last := w.publish(w.learn("user", 1, 8, 3, 6, 6, 6, 6))
			w.export(2, 2, last)
			w.exported(2, last)
			s.untilUser(7, 5, 5, 5, 5)
			wait.Until(t, "the next export", func() error { return s.check(someUsers, someMovies) })
		})
	}
}

// An epoch that nobody took must not fence the writer there is.
func TestAnEpochThatNobodyTookFencesNobody(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	w.plan(1, 2, job)
	ready := func(k uint32, epoch uint64) {
		w.append("shard", shard.Aggregate(job, k), &shard.Event{Body: &shard.Event_Ready{Ready: &shard.Ready{Job: job, Shard: k, Shards: 2, Epoch: epoch, RowsAddress: "127.0.0.1:1"}}})
	}
	ready(0, 3)
	ready(1, 3)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	w.publish(rowDelta("user", modelspec.FID(1, 7), math.MaxUint64, 9, 9, 9, 9))
	w.publish(rowDelta("user", modelspec.FID(1, 7), 4, 8, 8, 8, 8))
	w.publish(w.learn("user", 1, 7, 3, 1, 2, 3, 4))
	s.untilUser(7, 1, 2, 3, 4)
	wait.Until(t, "both shards have read all", func() error {
		if n := s.counted(t, "monolith_modelserver_delta_total", "forged"); n != 4 {
			return fmt.Errorf("%v deltas forged, want two at each", n)
		}
		return nil
	}) // or the slower one would take epoch 4 for what comes next
	ready(1, 4) // the next writer says so before its first delta
	w.publish(w.learn("user", 1, 7, 4, 4, 3, 2, 1))
	s.untilUser(7, 4, 3, 2, 1)
	w.publish(rowDelta("user", modelspec.FID(1, 7), 3, 9, 9, 9, 9)) // its predecessor's last word
	w.publish(w.learn("user", 1, 9, 4, 1, 1, 1, 1))
	s.untilUser(9, 1, 1, 1, 1)
	s.untilUser(7, 4, 3, 2, 1)
}

// One row that holds no number costs nobody else's.
func TestARowThatIsNotFiniteIsLeftOutAlone(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	w.plan(1, 2, job)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	wait.Until(t, "predict", func() error { return s.check(someUsers, someMovies) })
	before := slices.Clone(w.rows["user"][modelspec.FID(1, 7)])
	d := rowDelta("user", modelspec.FID(1, 7), 3, 1, 1, float32(math.NaN()), 1)
	good := w.learn("user", 1, 9, 3, 2, 2, 2, 2).Rows[0]
	d.Rows[0].Ids = append(d.Rows[0].Ids, good.Ids...)
	d.Rows[0].Values = append(d.Rows[0].Values, good.Values...)
	w.publish(d)
	s.untilUser(9, 2, 2, 2, 2)
	s.untilUser(7, before...)
	if n := s.counted(t, "monolith_modelserver_rows_not_finite_total", ""); n != 1 {
		t.Errorf("%v rows counted, want the one of the delta", n)
	}
}

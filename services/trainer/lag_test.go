package trainer

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
)

// lags are the series of the lag, by job and partition.
func lags(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "monolith_trainer_lag_records" {
			continue
		}
		for _, m := range f.GetMetric() {
			all[fmt.Sprint(m.GetLabel()[0].GetValue(), "/", m.GetLabel()[1].GetValue())] = m.GetGauge().GetValue()
		}
	}
	return all
}

// The lag of a partition counts the records that are still to be learnt: none that was aborted,
// is a marker, has expired or was parked. It goes with the partition.
func TestLagOfATrainer(t *testing.T) {
	w := newWorld(t, 2, 1)
	c := w.transactional()
	w.write(20) // two of them broken
	w.transaction(c, 0, 3, kgo.TryAbort)
	w.transaction(c, 0, 5, kgo.TryCommit)
	w.transaction(c, 1, 4, kgo.TryAbort)
	w.mu.Lock()
	for i := range 15 { // of partition 1, the broken one among them
		w.fids[1][i] = nil
	}
	delete(w.broken, "kafka:ratings/1 7")
	w.mu.Unlock()
	w.deleteBelow(1, 15)
	registry, learn := prometheus.NewRegistry(), make(chan struct{})
	w.shards[0].asked = func(*rowwire.LookupRequest) { <-learn }
	cfg := w.config("a", 0)
	cfg.CheckpointEvery = 0
	a := w.start(cfg, func(e *services.Env) { e.Metrics = registry }, func(s *Server) { s.lagEvery = 5 * time.Millisecond })
	is := func(what string, want map[string]float64) {
		t.Helper()
		wait.Until(t, what, func() error {
			if got := lags(t, registry); !maps.Equal(got, want) {
				return fmt.Errorf("the lag is %v, want %v", got, want)
			}
			return nil
		})
	}
	is("nothing is learnt", map[string]float64{"job/0": 25, "job/1": 5})
	close(learn)
	is("all is learnt or parked", map[string]float64{"job/0": 0, "job/1": 0})
	w.transaction(c, 0, 7, kgo.TryAbort)
	w.learnt(0, w.ends[0]+w.ends[1])
	is("what was aborted comes last", map[string]float64{"job/0": 0, "job/1": 0})
	a.stop(t)
	is("nobody has the partitions", map[string]float64{})
	w.checkLetters()
}

// committed is where a group's offsets say that its readers stand.
func (w *world) committed(group string) (at map[int32]int64, notes map[string]bool) {
	w.t.Helper()
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic = "ratings"
	for p := range w.ends {
		topic.Partitions = append(topic.Partitions, int32(p))
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.Topics = group, append(req.Topics, topic)
	res, err := req.RequestWith(w.t.Context(), w.kafka())
	if err != nil {
		w.t.Fatal(err)
	}
	at, notes = map[int32]int64{}, map[string]bool{}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				w.t.Fatalf("partition %d: error %d", p.Partition, p.ErrorCode)
			}
			at[p.Partition] = p.Offset
			if p.Metadata != nil {
				notes[*p.Metadata] = true
			}
		}
	}
	return at, notes
}

// Each cut is told to a group of Kafka's, from where tools read it and no trainer ever does.
func TestCutsAreToldToAGroup(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.write(40)
	a := w.run(w.config("a", 0))
	w.learnt(0, w.ends[0]+w.ends[1])
	if _, err := w.command("checkpoint", `{}`); err != nil {
		t.Fatal(err)
	}
	j := w.until("a cut is saved", func(j lineage.Job) bool { return len(j.Checkpoints) == 2 })
	cp := j.Checkpoints[1].V
	const group = "test.monolith-job"
	wait.Until(t, "the group says where the cut stands", func() error {
		at, notes := w.committed(group)
		if !maps.Equal(at, cp.GetOffsets()) || !notes[fmt.Sprint("checkpoint ", cp.GetId())] || len(notes) != 1 {
			return fmt.Errorf("it says %v and %v, the cut stands at %v", at, notes, cp.GetOffsets())
		}
		return nil
	})
	a.stop(t)
	topic, err := (&Config{Brokers: []string{w.broker.Addr()}, Topic: "ratings"}).source(services.Env{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong := cp
	wrong.Offsets = map[int32]int64{0: 3, 1: 1000}
	if err := topic.Commit(t.Context(), group, j.Started.V, wrong); err != nil {
		t.Fatal(err)
	}
	w.write(10)
	cfg := w.config("b", 0)
	cfg.Group = "none"
	b := w.run(cfg)
	w.learnt(0, w.ends[0]+w.ends[1])
	if _, err := w.command("checkpoint", `{}`); err != nil {
		t.Fatal(err)
	}
	b.stop(t)
	w.shards[0].checkBooks(w.ends) // each once
	if at, _ := w.committed(group); !maps.Equal(at, wrong.GetOffsets()) {
		t.Errorf("a trainer without a group told it %v", at)
	}
}

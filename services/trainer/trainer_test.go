package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Two trainers, one of which leaves, answers that get lost, shards that crash and lose
// what came after the last checkpoint: each offset is learnt once by each shard.
func TestExactlyOnce(t *testing.T) {
	w := newWorld(t, 4, 2)
	for _, s := range w.shards {
		s.flaky = 0.05
	}
	w.write(300)
	cfg := w.config("a", 0)
	cfg.CheckpointEvery = 300 * time.Millisecond
	a := w.run(cfg)
	cfg.Name, cfg.Index = "b", 1
	b := w.run(cfg)
	w.until("both trainers have partitions", func(j lineage.Job) bool {
		n := map[string]int{}
		for _, p := range j.Partitions {
			n[p.V.GetTrainer()]++
		}
		return n["a"] == 2 && n["b"] == 2
	})
	w.learnt(0, 400)
	w.shards[1].crash()
	w.write(200)
	w.learnt(1, 1200)
	a.stop(t)
	w.shards[0].crash()
	w.write(100)
	w.until("the other has taken all over", func(j lineage.Job) bool {
		for p := range int32(4) {
			if j.Partitions[p].V.GetTrainer() != "b" {
				return false
			}
		}
		return true
	})
	w.learnt(0, 2400)
	w.learnt(1, 2400)
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "enough"}}})
	b.wait(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	w.checkLetters()

	facts, _ := w.facts(jobSubject())
	if facts[0].GetJobStarted() == nil || facts[len(facts)-1].GetJobStopped().GetReason() != "enough" {
		t.Fatalf("the job's facts begin with %v and end with %v", facts[0], facts[len(facts)-1])
	}
	var id, saved int64
	for _, f := range facts[1:] {
		if c := f.GetCheckpointStarted(); c != nil {
			if c.GetId() != id+1 {
				t.Errorf("id %d was claimed behind %d", c.GetId(), id)
			}
			id = c.GetId()
		}
		if f.GetJobStarted() != nil {
			t.Error("the job was started twice")
		}
		if c := f.GetCheckpointSaved().GetCheckpoint(); c != nil {
			if c.GetId() != id || c.GetId() <= saved {
				t.Errorf("checkpoint %d was begun as %d, behind %d", c.GetId(), id, saved)
			}
			saved = c.GetId()
		}
	}
	for p, end := range w.ends {
		if got := facts[len(facts)-1].GetJobStopped().GetOffsets()[int32(p)]; got != end {
			t.Errorf("the last checkpoint has partition %d at %d, not %d", p, got, end)
		}
	}
}

func TestBoundedJob(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.write(100)
	cfg := w.config("a", 0)
	cfg.StopAtEnd, cfg.ExportEvery = true, 1
	w.run(cfg).wait(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	j := w.until("the job is stopped", func(j lineage.Job) bool { return j.Stopped })
	if len(j.Checkpoints) != 2 || len(j.Exports) != 2 {
		t.Fatalf("%d checkpoints and %d exports, due were those of the start and the end", len(j.Checkpoints), len(j.Exports))
	}
	if o := j.Checkpoints[0].V.GetOffsets(); len(o) > 2 || j.Checkpoints[1].V.GetOffsets()[1] != 100 {
		t.Fatalf("offsets %v, then %v", o, j.Checkpoints[1].V.GetOffsets())
	}
	entry, err := checkpoint.ReadEntry(filepath.Join(w.dir, cut.ExportsDir, "entry", "2"))
	if err != nil {
		t.Fatal(err)
	}
	if entry.Version != 2 || entry.Job != theJob || entry.Shards != 2 || !proto.Equal(entry.Spec, trainertest.SmallSpec()) {
		t.Fatalf("entry %+v", entry)
	}
	for _, v := range modelspec.Variables(trainertest.SmallSpec()) {
		if !slices.Equal(entry.Dense[v.Name].Values, modelspec.InitVariable(trainertest.SmallSpec(), v)) || len(entry.Dense[v.Name].Slots) != 0 {
			t.Errorf("variable %s was not exported as it is", v.Name)
		}
	}
	// The same job again: it is over, until somebody asks for its start. Then it starts
	// anew, finds nothing to learn and ends.
	w.run(cfg).wait(t)
	w.until("nothing happens", func(now lineage.Job) bool { return now.Stopped && now.Seq == j.Seq })
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "again"}}})
	w.run(cfg).wait(t)
	w.until("it has run again", func(now lineage.Job) bool { return now.Stopped && now.Seq > j.Seq })
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
}

func TestRequests(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(20)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 && len(j.Exports) == 1 })

	reply, err := w.command("checkpoint", `{"reason":"by hand"}`)
	if err != nil || !strings.Contains(string(reply), `"checkpoint":2`) {
		t.Fatal(string(reply), err)
	}
	var refused *bus.CommandError
	if _, err := w.command("checkpoint", `{"reson":"typo"}`); !errors.As(err, &refused) || refused.Code != "INVALID" {
		t.Fatal("an unknown key:", err)
	}

	// A command outlasts what passes by itself: it is not the caller's to try again.
	w.shards[0].mu.Lock()
	w.shards[0].busy = 2
	w.shards[0].mu.Unlock()
	reply, err = w.command("checkpoint", `{"reason":"while another cut holds"}`)
	if err != nil || !strings.Contains(string(reply), `"checkpoint":3`) {
		t.Fatal(string(reply), err)
	}

	w.failsOnce()

	// What is no request of a job is refused, once; so is what others put on its
	// subjects and those of its trainers.
	wrong := w.wrongRequests()
	refusals := func() (n int) {
		letters, err := w.b.DeadLetters().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range letters {
			if l.Stream == "MONOLITH" && l.By == author && l.Reason != "" {
				n++
			}
		}
		return n
	}
	// The subjects are read on their own: one that lies behind when the job ends stays in the log.
	wait.Seen(t, "each wrong request is parked", func() (string, bool) { n := refusals(); return fmt.Sprint(n, " of ", wrong), n == wrong })
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "enough"}}})
	a.wait(t)
	if n := refusals(); n != wrong {
		t.Errorf("%d requests were parked after the job's end, %d before", n, wrong)
	}
}

// failsOnce has a requested checkpoint fail, which is a fact, and the next one succeed.
func (w *world) failsOnce() {
	t := w.t
	t.Helper()
	w.shards[0].fails(errors.New("disk full"))
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "now", Export: true}}})
	var failed *training.CheckpointFailed
	w.until("the failure is a fact", func(lineage.Job) bool {
		facts, headers := w.facts(jobSubject())
		for i, f := range facts {
			if f.GetCheckpointFailed() != nil && headers[i].Causation != "" {
				failed = f.GetCheckpointFailed()
			}
		}
		return failed != nil
	})
	if failed.GetId() != 4 || !strings.Contains(failed.GetReason(), "disk full") {
		t.Fatalf("failed: %v", failed)
	}
	w.shards[0].mu.Lock()
	held := w.shards[0].held
	w.shards[0].snapErr = nil
	w.shards[0].mu.Unlock()
	if held != "" {
		t.Fatal("the shard is still held by", held)
	}
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "again"}}})
	j := w.until("the second request is answered", func(j lineage.Job) bool { return len(j.Checkpoints) == 4 })
	if len(j.Exports) != 1 || j.Checkpoints[3].V.GetId() != 5 { // 4 was begun and failed
		t.Fatalf("%d exports, checkpoint %d", len(j.Exports), j.Checkpoints[3].V.GetId())
	}
}

// wrongRequests puts what is no request on subjects of the job and its trainers, and says how many.
func (w *world) wrongRequests() int {
	t := w.t
	t.Helper()
	trainer := events.Join(bzid, "training", theJob+"/a")
	wrong := []struct {
		subject events.Subject
		body    string
	}{
		{jobSubject().Request(), `{"jobStopped":{}}`}, {jobSubject().Request(), `{"checkpointRequested":`},
		{jobSubject(), "x"}, {trainer, "x"}, {trainer.Request(), `{"checkpointRequested":{}}`},
	}
	for i, x := range wrong {
		seq, err := w.b.DeadLetters().Park(t.Context(), bus.Parked{Reason: "so that it can be re-driven", By: "test", Stream: fmt.Sprint("s", i), Subject: string(x.subject), Data: []byte(x.body)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.b.DeadLetters().Redrive(t.Context(), seq, nil); err != nil {
			t.Fatal(err)
		}
	}
	return len(wrong)
}

// A request that is sent again under its ce-id is carried out once, also by the next chief.
func TestRequestsOfOneID(t *testing.T) {
	w := newWorld(t, 1, 1)
	ask := func(reason string) uint64 {
		t.Helper()
		body := fmt.Sprintf(`{"checkpointRequested":{"reason":%q}}`, reason)
		seq, err := w.b.Publish(t.Context(), string(jobSubject().Request()), map[string][]string{"ce-id": {"deploy-42"}}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	answers := func() (n int) {
		facts, headers := w.facts(jobSubject())
		for i, f := range facts {
			if f.GetCheckpointSaved() != nil && headers[i].Causation == "deploy-42" {
				n++
			}
		}
		return n
	}
	command := func() { // a chief that answers one has answered the requests that it knew before
		t.Helper()
		if _, err := w.command("checkpoint", `{}`); err != nil {
			t.Fatal(err)
		}
	}
	var server *Server
	a := w.start(w.config("a", 0), func(*services.Env) {}, func(s *Server) { server = s })
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	ask("the first time")
	w.until("the answer", func(lineage.Job) bool { return answers() > 0 })
	if err := server.requests.Wait(t.Context(), ask("again")); err != nil {
		t.Fatal(err)
	}
	command()
	command()
	if n := answers(); n != 1 {
		t.Errorf("sent twice, it is answered %d times", n)
	}
	a.stop(t)
	ask("again, with nobody there")
	w.run(w.config("b", 0))
	w.until("the next chief", func(lineage.Job) bool {
		_, err := w.command("checkpoint", `{}`)
		return err == nil
	})
	if n := answers(); n != 1 {
		t.Errorf("sent to the next chief too, it is answered %d times", n)
	}
}

// After a chief dies the next one answers what was left open.
func TestNextChief(t *testing.T) {
	w := newWorld(t, 1, 1)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	a.stop(t)
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: "while nobody was there"}}})
	b := w.run(w.config("b", 1))
	w.until("the request is answered", func(j lineage.Job) bool { return len(j.Checkpoints) == 2 })
	b.stop(t)
	facts, _ := w.facts(jobSubject())
	started := 0
	for _, f := range facts {
		if f.GetJobStarted() != nil {
			started++
		}
	}
	if started != 1 {
		t.Error("the job was started", started, "times")
	}
	// Trainers that disagree about the job must not train it. They say so, and answer a
	// request to stop it.
	cfg := w.config("c", 0)
	cfg.Deterministic = true
	well := health.New()
	c := w.start(cfg, func(e *services.Env) { e.Health = well }, func(*Server) {})
	problem(t, well, healthJob, "start this trainer alike")
	problem(t, well, chief.HealthStart, "start this trainer alike")
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "to start it otherwise"}}})
	c.wait(t)
	j := w.until("the job is stopped", func(j lineage.Job) bool { return j.Stopped })
	if len(j.Checkpoints) != 2 {
		t.Errorf("%d checkpoints, the last trainer could make none", len(j.Checkpoints))
	}
}

// problem waits until the health state has a problem of that name and reason.
func problem(t *testing.T, well *health.State, name, reason string) {
	t.Helper()
	wait.Seen(t, fmt.Sprintf("problem %q with %q", name, reason), func() (string, bool) {
		for _, p := range well.Problems() {
			if p.Name == name && strings.Contains(p.Reason, reason) {
				return "", true
			}
		}
		return fmt.Sprint(well.Problems()), false
	})
}

// healthy waits until the health state has no problems.
func healthy(t *testing.T, well *health.State) {
	t.Helper()
	wait.Seen(t, "health", func() (string, bool) { return fmt.Sprint(well.Problems()), len(well.Problems()) == 0 })
}

// One trace leads from the record through the step to the shards, and what is learnt is
// measured and reported.
func TestTraceAndFigures(t *testing.T) {
	w := newWorld(t, 1, 2)
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var recs []kafka.Record
	for i := range 300 {
		w.fids[0] = append(w.fids[0], []int64{modelspec.FID(1, int64(i)), modelspec.FID(2, 9)})
		recs = append(recs, kafka.Record{Topic: "ratings", Value: fmt.Appendf(nil, `{"userId":%d,"movieId":9,"rating":%d}`, i, i%6)})
	}
	recs[100].Headers = map[string]string{"traceparent": tp}
	if _, err := w.writer.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	defer provider.Shutdown(context.Background())
	registry := prometheus.NewRegistry()
	a := w.start(w.config("a", 0), func(e *services.Env) {
		e.Tracer, e.Metrics = provider.Tracer("test"), registry
	}, func(s *Server) { s.reportEvery = 20 * time.Millisecond })
	w.learnt(0, 300)
	w.learnt(1, 300)
	figures := map[string]*training.MetricReported{}
	w.until("the figures are reported", func(lineage.Job) bool {
		facts, _ := w.facts(events.Join(bzid, "training", theJob+"/a"))
		for _, f := range facts {
			if m := f.GetMetricReported(); m.GetSamples() == 300 {
				figures[m.GetName()] = m
			}
		}
		return len(figures) == 3
	})
	a.stop(t)
	if v := figures["auc"].GetValue(); v < 0 || v > 1 {
		t.Error("auc", v)
	}
	if v := figures["loss"].GetValue(); !(v > 0.1 && v < 5) {
		t.Error("loss", v)
	}
	if v := figures["samples_per_second"].GetValue(); !(v > 0) {
		t.Error("samples per second", v)
	}
	ended := spans.Ended()
	if len(ended) != 1 || ended[0].Name() != "trainer.step" || ended[0].Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Fatalf("spans %v", ended)
	}
	want := fmt.Sprintf("00-%s-%s-01", ended[0].SpanContext().TraceID(), ended[0].SpanContext().SpanID())
	for i, s := range w.shards {
		if !slices.Equal(s.traces, []string{want}) {
			t.Errorf("shard %d was given %v, want %s", i, s.traces, want)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "monolith_trainer_samples_total" && f.GetMetric()[0].GetCounter().GetValue() == 300 {
			return
		}
	}
	t.Error("the counter of samples does not show 300")
}

func TestKeep(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Keep = 2
	w.append(events.Join(bzid, "model", "movies"), &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{
		ModelName: "movies", ModelDir: filepath.Join(w.dir, cut.ExportsDir), Version: 2, NumShard: 1,
	}}}})
	elsewhere := t.TempDir() // is another job's, whatever number it has
	w.append(events.Join(bzid, "model", "others"), &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{
		ModelName: "others", ModelDir: elsewhere, Version: 1, NumShard: 1,
	}}}})
	w.append(events.Join(bzid, "publish", "others"), &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{
		ModelName: "others", ModelDir: elsewhere, Version: 3, NumPs: 1, Job: "other", Cause: 1,
		Assignments: []*publish.Assignment{{Container: "c0", SubModels: map[string]string{"entry": filepath.Join(elsewhere, "entry", "3"), "ps_0": filepath.Join(elsewhere, "ps_0", "3")}}},
	}}})
	a := w.run(cfg)
	for i := 2; i <= 5; i++ {
		j := w.until("a checkpoint is made", func(j lineage.Job) bool { return j.LastID == int64(i-1) && len(j.Checkpoints) > 0 })
		// What was deleted is told with the checkpoint after.
		if len(j.Checkpoints) > cfg.Keep+1 || len(j.Exports) > cfg.Keep+2 {
			t.Errorf("the view names %d checkpoints and %d exports, %d are kept", len(j.Checkpoints), len(j.Exports), cfg.Keep)
		}
		if _, err := w.command("checkpoint", `{"export":true}`); err != nil {
			t.Fatal(err)
		}
	}
	a.stop(t)
	list := func(dir string) (names []string) {
		es, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			names = append(names, e.Name())
		}
		return names
	}
	if got := list(w.dir); !slices.Equal(got, []string{"ckpt.info-4", "ckpt.info-5", cut.ExportsDir, "model.ckpt-4", "model.ckpt-5"}) {
		t.Error("checkpoints left:", got)
	}
	for _, sub := range []string{"entry", "ps_0"} {
		if got := list(filepath.Join(w.dir, cut.ExportsDir, sub)); !slices.Equal(got, []string{"2", "4", "5"}) {
			t.Errorf("versions of %s left: %v", sub, got)
		}
	}
}

// What a trainer tries again and again is a problem of its process until it works.
func TestWhatDoesNotWorkIsAProblem(t *testing.T) {
	w := newWorld(t, 1, 2)
	w.write(20)
	well := health.New()
	cfg := w.config("a", 0)
	cfg.CheckpointEvery = 20 * time.Millisecond
	a := w.start(cfg, func(e *services.Env) { e.Health = well }, func(*Server) {})
	w.learnt(0, 20)
	healthy(t, well)

	w.shards[1].fails(errors.New("disk full"))
	w.write(5)
	problem(t, well, chief.HealthCheckpoint, "disk full")
	w.shards[1].fails(nil)
	healthy(t, well)

	w.shards[1].stop()
	w.write(5)
	problem(t, well, "shard 1", "connection")
	w.shards[1].crash()
	w.learnt(1, 30)
	healthy(t, well)

	addr := w.broker.Addr()
	if err := w.broker.Close(); err != nil {
		t.Fatal(err)
	}
	problem(t, well, "reading ratings/0", "kafka unavailable")
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: w.logDir, Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	w.broker = broker
	healthy(t, well)
	a.stop(t)
}

package trainer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/internal/chief"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

func (w *world) kafka() *kgo.Client {
	w.t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.broker.Addr()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// grow gives the topic more partitions.
func (w *world) grow(partitions int) {
	w.t.Helper()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 5000
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = "ratings", int32(partitions)
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(w.t.Context(), w.kafka())
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.ends) < partitions {
		w.ends, w.fids = append(w.ends, 0), append(w.fids, nil)
	}
}

// remake deletes the topic and makes one of the same name.
func (w *world) remake() {
	w.t.Helper()
	w.remove()
	if err := kafka.Plain.EnsureTopics(w.t.Context(), []string{w.broker.Addr()}, map[string]int32{"ratings": int32(len(w.ends))}); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.ends {
		w.ends[p], w.fids[p] = 0, nil
	}
}

func looksOften(s *Server) { s.lookAtTopicEvery = 20 * time.Millisecond }

// Partitions that are added to the topic become a fact of the job and are learnt, by the
// trainers that run and by those that start later.
func TestPartitionsThatAreAddedAreLearnt(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.write(30)
	a := w.start(w.config("a", 0), func(*services.Env) {}, looksOften)
	w.learnt(0, 60)
	w.grow(5)
	w.write(20)
	w.learnt(0, 2*50+3*20)
	w.learnt(1, 2*50+3*20)
	j := w.until("the partitions are a fact", func(j lineage.Job) bool { return j.Started.V.GetPartitions() == 5 })
	if j.Started.V.GetTopicId() == "" {
		t.Error("the job does not know its topic's id")
	}
	a.stop(t)
	w.grow(6) // while nobody looks
	w.write(10)
	b := w.run(w.config("a", 0))
	w.learnt(0, 2*60+3*30+10)
	w.learnt(1, 2*60+3*30+10)
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{}}})
	b.wait(t)
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	w.checkLetters()
	facts, _ := w.facts(jobSubject())
	var grown []int32
	for _, f := range facts {
		if u := f.GetTopicUpdated(); u != nil {
			grown = append(grown, u.GetPartitions())
		}
	}
	if fmt.Sprint(grown) != "[5 6]" {
		t.Errorf("topicUpdated with %v partitions", grown)
	}
}

// The order of a deterministic job follows from the number of its partitions: it keeps
// it, and says that what is in the others is not learnt.
func TestDeterministicJobKeepsItsPartitions(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.shards[0].inOrder = true
	w.write(32)
	cfg := w.config("a", 0)
	cfg.Deterministic = true
	well := health.New()
	env := func(e *services.Env) { e.Health = well }
	a := w.start(cfg, env, looksOften)
	w.learnt(0, 64)
	w.grow(3)
	problem(t, well, "topic", "3 partitions, the deterministic job job learns 2")
	a.stop(t)
	b := w.start(cfg, env, looksOften)
	w.write(16)
	w.learnt(0, 96)
	problem(t, well, "topic", "3 partitions, the deterministic job job learns 2")
	b.stop(t)
	w.shards[0].checkBooks(w.ends[:2])
}

// A topic that is deleted and made anew is another one, however long it grows, for the
// trainers that run and for those that start later.
func TestTopicMadeAnewIsNotLearnt(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(50)
	well := health.New()
	env := func(e *services.Env) { e.Health = well }
	a := w.start(w.config("a", 0), env, looksOften)
	w.learnt(0, 50)
	w.remake()
	w.write(80)
	problem(t, well, "reading ratings/0", "another one under the same name")
	problem(t, well, "topic", "another one under the same name")
	a.stop(t)
	healthy(t, well)

	b := w.start(w.config("a", 0), env, looksOften)
	problem(t, well, chief.HealthStart, "train under a new job name")
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "it is lost"}}})
	b.wait(t) // it cannot run, but it can be stopped
	facts, _ := w.facts(jobSubject())
	if s := facts[len(facts)-1].GetJobStopped(); !strings.HasPrefix(s.GetReason(), "it is lost (") {
		t.Errorf("the last fact is %v", facts[len(facts)-1])
	}
	// Not even its start makes the other topic this job's.
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{}}})
	c := w.start(w.config("a", 0), env, looksOften)
	problem(t, well, chief.HealthStart, "train under a new job name")
	c.stop(t)
	if got := w.shards[0].now.next[0]; got != 50 {
		t.Errorf("the shard has learnt up to %d, the topic that it learnt from ended at 50", got)
	}
}

// A log that lost its end while everybody was down, and was written anew past what was
// learnt, is told by the checkpoint's leader epoch.
func TestTruncatedLogIsNotLearnt(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(50)
	a := w.run(w.config("a", 0))
	w.learnt(0, 50)
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{}}})
	j := w.until("a checkpoint holds it", func(j lineage.Job) bool {
		return len(j.Checkpoints) > 0 && j.Checkpoints[len(j.Checkpoints)-1].V.GetOffsets()[0] == 50
	})
	if e, ok := j.Checkpoints[len(j.Checkpoints)-1].V.GetLeaderEpochs()[0]; !ok {
		t.Fatal("the checkpoint has no leader epoch", e)
	}
	a.stop(t)
	w.loseBatches(1)
	for range 3 {
		w.write(20)
	}
	well := health.New()
	b := w.start(w.config("a", 0), func(e *services.Env) { e.Health = well }, looksOften)
	problem(t, well, "reading ratings/0", "cut below what was read")
	b.stop(t)
	if got := w.shards[0].now.next[0]; got != 50 {
		t.Errorf("the shard has learnt up to %d of a log that it never learnt from", got)
	}
}

// A log that loses what was learnt behind the newest checkpoint is found out at the next start, though it
// has grown past that by then: nothing of it is learnt.
func TestWhatWasLearntSinceTheCheckpointIsLost(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		t.Run(fmt.Sprint("deterministic ", inOrder), func(t *testing.T) {
			w := newWorld(t, 1, 1)
			w.shards[0].inOrder = inOrder
			cfg := w.config("a", 0)
			cfg.Deterministic = inOrder
			a := w.run(cfg)
			w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
			w.write(32)
			w.write(16)
			w.learnt(0, 48)
			a.stop(t)
			w.loseBatches(1)
			for range 3 {
				w.write(20)
			}
			for range 2 { // a second start knows no less than the first
				well := health.New()
				b := w.start(cfg, func(e *services.Env) { e.Health = well }, looksOften)
				problem(t, well, "reading ratings/0", "cut below what was read")
				b.stop(t)
			}
			if got := w.shards[0].now.next[0]; got != 48 {
				t.Errorf("the shard has learnt up to %d of a log that it never learnt from", got)
			}
			well := health.New()
			b := w.start(cfg, func(e *services.Env) { e.Health = well }, looksOften)
			problem(t, well, "reading ratings/0", "cut below what was read")
			w.shards[0].crash() // and is back at the checkpoint, which has nothing of what was lost
			w.learnt(0, w.ends[0]/16*16)
			healthy(t, well)
			b.stop(t)
		})
	}
}

// Leaders that change lose nothing: a trainer says in which leader's time it learns, again whenever that is
// another, and one that comes later goes on.
func TestAnotherLeaderIsNoLoss(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(20)
	a := w.run(w.config("a", 0))
	w.learnt(0, 20)
	for range 2 {
		w.bounce()
		w.write(20)
		w.learnt(0, w.ends[0])
	}
	a.stop(t)
	w.bounce()
	w.write(20)
	b := w.run(w.config("b", 0))
	w.learnt(0, w.ends[0])
	b.stop(t)
	w.shards[0].checkBooks(w.ends)
	var said []string
	for _, trainer := range []string{"a", "b"} {
		facts, _ := w.facts(events.Join(bzid, "training", theJob+"/"+trainer))
		last := int32(-1)
		for _, f := range facts {
			if p := f.GetPartitionTaken(); p != nil {
				if p.LeaderEpoch == nil || p.GetLeaderEpoch() <= last {
					t.Errorf("%s: %v", trainer, p)
				}
				last = p.GetLeaderEpoch()
				said = append(said, fmt.Sprint(trainer, " from ", p.GetFrom()))
			}
		}
	}
	if want := []string{"a from 0", "a from 20", "a from 40", "b from 60"}; !slices.Equal(said, want) {
		t.Errorf("said: %q, want %q", said, want)
	}
}

// A stopped job stays stopped, whoever starts its trainers again, until its start is
// requested; requests that make no sense are parked.
func TestStoppedJobStaysStopped(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.write(20)
	ask := func(e *training.Event) { w.append(jobSubject().Request(), e) }
	stop := &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "enough"}}}
	start := &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "go on"}}}
	ask(start) // it is not stopped: refused
	a := w.run(w.config("a", 0))
	w.learnt(0, 40)
	ask(stop)
	a.wait(t)
	j := w.until("the job is stopped", func(j lineage.Job) bool { return j.Stopped })

	w.write(10)
	b := w.run(w.config("a", 0)) // as anything does that starts ended processes again
	c := w.run(w.config("b", 1))
	ask(stop) // it is stopped: refused
	ask(&training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{}}})
	wait.Seen(t, "the refusals", func() (string, bool) {
		letters, err := w.b.DeadLetters().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, l := range letters {
			if l.Stream == "MONOLITH" {
				n++
			}
		}
		return fmt.Sprint(n, " letters"), n == 3
	})
	if now := w.until("it is still stopped", func(j lineage.Job) bool { return j.Stopped }); now.Seq != j.Seq {
		t.Fatal("facts were appended to a stopped job")
	}
	ask(start)
	w.until("it runs again", func(j lineage.Job) bool { return !j.Stopped })
	w.learnt(0, 60)
	b.stop(t)
	c.stop(t)
	w.shards[0].checkBooks(w.ends)
	facts, headers := w.facts(jobSubject())
	for i, f := range facts {
		if f.GetJobStarted() != nil && (headers[i].Causation != "") != (i > 0) {
			t.Errorf("fact %d, jobStarted, was caused by %q", i, headers[i].Causation)
		}
	}
}

// A job that never could start is stopped all the same.
func TestJobThatCannotStartIsStopped(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.Model = "nobody-declared-it"
	well := health.New()
	a := w.start(cfg, func(e *services.Env) { e.Health = well }, func(*Server) {})
	problem(t, well, chief.HealthStart, "nobody-declared-it is not declared")
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "a mistake"}}})
	a.wait(t)
	w.until("the job is stopped", func(j lineage.Job) bool { return j.Stopped })
}

// The end of a bounded job is one fact: a trainer that comes later, and may lead, does
// not wait for what came later still.
func TestEndOfABoundedJobIsOneFact(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.write(40)
	cfg := w.config("a", 0)
	cfg.StopAtEnd = true
	w.shards[0].mu.Lock()
	w.shards[0].busy = 1 << 30 // no checkpoint is made: the job cannot end yet
	w.shards[0].mu.Unlock()
	a := w.run(cfg)
	w.until("the job runs", func(j lineage.Job) bool { return len(j.Started.V.GetEnds()) == 2 })
	w.learnt(0, 80)
	ends := append([]int64(nil), w.ends...)
	w.write(30)
	a.stop(t)
	w.shards[0].mu.Lock()
	w.shards[0].busy = 0
	w.shards[0].mu.Unlock()
	cfg.Name = "b"
	w.run(cfg).wait(t)
	w.shards[0].checkBooks(ends)
}

// A deterministic job that runs without an end gets none later: its order would change.
func TestDeterministicJobGetsNoEndLater(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.shards[0].inOrder = true
	w.write(16)
	cfg := w.config("a", 0)
	cfg.Deterministic = true
	a := w.run(cfg)
	w.learnt(0, 32)
	a.stop(t)
	cfg.StopAtEnd = true
	well := health.New()
	b := w.start(cfg, func(e *services.Env) { e.Health = well }, func(*Server) {})
	problem(t, well, chief.HealthStart, "start it again with --stop-at-end")
	b.stop(t)
	j := w.until("the job runs on", func(j lineage.Job) bool { return !j.Stopped })
	if len(j.Started.V.GetEnds()) != 0 {
		t.Errorf("it ends at %v", j.Started.V.GetEnds())
	}
}

// Many requests for a checkpoint are answered by few cuts.
func TestCheckpointRequestsCoalesce(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.write(20)
	a := w.run(w.config("a", 0))
	w.until("the first checkpoint is made", func(j lineage.Job) bool { return len(j.Checkpoints) == 1 })
	a.stop(t)
	for i := range 500 {
		w.append(jobSubject().Request(), &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Export: i == 7}}})
	}
	b := w.run(w.config("b", 1))
	j := w.until("they are answered, one of them with an export", func(j lineage.Job) bool { return len(j.Checkpoints) >= 2 && len(j.Exports) == 2 })
	if n := len(j.Checkpoints); n != 2 {
		t.Errorf("%d checkpoints: one answers all requests", n)
	}
	const callers = 100
	answers := make(chan error, callers)
	for range callers {
		go func() {
			_, err := w.command("checkpoint", `{}`)
			answers <- err
		}()
	}
	for range callers {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	w.append(jobSubject().Request(), &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{}}})
	b.wait(t)
	j = w.until("the job is stopped", func(j lineage.Job) bool { return j.Stopped })
	if n := len(j.Checkpoints); n > 40 {
		t.Errorf("%d checkpoints for 500 requests and %d commands", n, callers)
	}
}

// refusing is a log that takes nothing.
type refusing struct{ bus.Log }

func (refusing) Append(context.Context, ...bus.Draft) ([]uint64, error) { return nil, bus.ErrFull }

type refusingBus struct{ bus.Bus }

func (b refusingBus) Log() bus.Log { return refusing{b.Bus.Log()} }

// What a look at the topic finds is a fact, a problem, or nothing to speak of.
func TestALookAtTheTopic(t *testing.T) {
	w := newWorld(t, 2, 1)
	s := w.view(w.config("a", 0))
	log := &trainertest.Lines{}
	s.log = log.Logger()
	there, err := s.source.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, change func(*training.JobStarted), problem string, facts int) {
		t.Helper()
		b := s.started()
		b.Partitions, b.TopicId = 2, there.ID
		change(b)
		w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: b}})
		w.caughtUp(s)
		before, _ := w.facts(jobSubject())
		s.chief().Term(1).LookAtTopic(t.Context())
		after, _ := w.facts(jobSubject())
		if len(after)-len(before) != facts {
			t.Errorf("%s: appended %v", what, after[len(before):])
		}
		says(t, s, what, chief.HealthTopic, problem)
	}
	bounded := map[int32]int64{0: 5}
	look("nothing new", func(*training.JobStarted) {}, "", 0)
	look("another topic", func(b *training.JobStarted) { b.TopicId = "another" }, "another one under the same name", 0)
	look("a partition more", func(b *training.JobStarted) { b.Partitions = 1 }, "", 1)
	look("a partition more, beyond the end", func(b *training.JobStarted) { b.Partitions, b.Ends = 1, bounded }, "", 0)
	s.cfg.Deterministic = true
	look("a partition more, out of the order", func(b *training.JobStarted) { b.Partitions = 1 }, "what is in the others is not learnt", 0)
	look("and beyond the end", func(b *training.JobStarted) { b.Partitions, b.Ends = 1, bounded }, "", 0)
	look("as many", func(*training.JobStarted) {}, "", 0)
	s.cfg.Deterministic = false
	look("before the stop", func(*training.JobStarted) {}, "", 0)
	w.append(jobSubject(), stopped())
	w.grow(3)
	w.caughtUp(s)
	before, _ := w.facts(jobSubject())
	s.chief().Term(1).LookAtTopic(t.Context())
	if after, _ := w.facts(jobSubject()); len(after) != len(before) {
		t.Errorf("of a stopped job it appended %v", after[len(before):])
	}
	if got := log.All(); len(got) != 0 {
		t.Errorf("log %q", got)
	}
	s.env.Bus = refusingBus{w.b}
	look("a partition more, and the log is full", func(*training.JobStarted) {}, "", 0)
	if got := log.All(); len(got) != 1 || !strings.Contains(got[0], "could not be said") {
		t.Errorf("log %q", got)
	}
	// The leader epochs of a cut are those of the job's own topic.
	if got := s.chief().LeaderEpochs(t.Context(), map[int32]int64{0: 1, 2: 5, 3: 9}); len(got) != 2 || got[0] != there.Partitions[0].LeaderEpoch {
		t.Errorf("leader epochs %v of partitions 0 and 2", got)
	}
	other := s.started()
	other.Partitions, other.TopicId = 2, "another"
	w.append(jobSubject(), &training.Event{Body: &training.Event_JobStarted{JobStarted: other}})
	w.caughtUp(s)
	if got := s.chief().LeaderEpochs(t.Context(), map[int32]int64{0: 1}); got != nil {
		t.Errorf("leader epochs of another topic: %v", got)
	}
}

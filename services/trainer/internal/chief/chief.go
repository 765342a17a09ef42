// Package chief leads a training job: the one trainer that holds the chief's lease starts the job, makes
// its checkpoints and exports, has it return to earlier ones, follows its topic, and answers requests and
// commands about it. It keeps nothing that the log does not hold.
package chief

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/role"
	"github.com/monolith-go/monolith/services/trainer/cut"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

const (
	PauseAfterError     = time.Second           // between attempts at what the chief leads
	longestPause        = 30 * time.Second      // between attempts at a checkpoint that is due by steps
	pauseBeforeCommands = 20 * time.Millisecond // a shard that is ready takes commands within about this time
)

// Chief is the one trainer of a job that makes its checkpoints and appends its facts.
type Chief struct {
	*Trainer
	epoch    uint64
	attempts *health.Attempts // at a checkpoint
	cuts     int              // attempts, so that each cut has a name of its own
	saved    int              // checkpoints that nobody has asked for, of which every so many is an export
	failing  *retry.Backoff   // paces those by steps, which stay due, after one that failed
	resume   time.Time        // before it none is made by steps
	Asked    chan Order
	swept    cut.Swept // what the next checkpoint says was deleted

	committed role.LastLogged // what became of telling Kafka about a cut
}

// Order is a checkpoint that somebody waits for.
type Order struct {
	Reason string
	Export bool
	Keep   bool // it is to be exempt from those that are deleted
	Done   chan Answer
	Gone   <-chan struct{} // closed once nobody waits for Done
	asked  events.Asked    // by the first of those for whom the checkpoint is made
}

// Answer is what came of an order.
type Answer struct {
	ID  int64
	Seq uint64
	Err error
}

// Reply is what the caller hears.
func (a Answer) Reply() ([]byte, error) {
	switch {
	case a.Err != nil && cut.Passes(a.Err):
		return nil, bus.Refuse(bus.CodeUnavailable, "checkpoint %d failed: %v: ask again", a.ID, a.Err)
	case a.Err != nil:
		return nil, bus.Refuse(bus.CodeInternal, "checkpoint %d failed: %v", a.ID, a.Err)
	}
	return json.Marshal(map[string]any{"checkpoint": a.ID, "seq": a.Seq})
}

// ErrStopped ends the leadership: the job was stopped.
var ErrStopped = fmt.Errorf("the job was stopped: %w", bus.ErrResigned)

// run is one term.
func (c *Chief) run(ctx context.Context, term bus.Term) error {
	s := c.Trainer
	held := c.hold()
	stop, err := s.Env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.Env.BZID, Name: "trainer." + events.Escape(s.Job), Version: "1.0.0",
		Description: "checkpoints, pauses and status of training job " + s.Job,
		Endpoints: map[string]bus.Handler{
			"checkpoint": c.HandleCheckpoint,
			"restore":    c.handleRestore,
			"keep":       c.handleKeep,
			"release":    c.handleRelease,
			"dump":       c.handleDump,
			"pause":      held.HandlePause,
			"resume":     held.HandleResume,
			"status":     held.HandleStatus,
			"state":      role.State(map[string]role.View{lineage.Name: s.Lineage}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stop()
	ctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { held.Run(ctx) })
	beside.Go(func() { held.Machines(ctx) })
	c.controlled(ctx, held, &beside)
	defer beside.Wait()
	defer end()
	if err := c.Begin(ctx); err != nil { // the commands are there meanwhile: one brings shards back
		return err
	}
	if j := c.job(); len(j.Checkpoints) == 0 || len(j.Exports) == 0 { // so that there is a model to load from the first step on
		if err := c.RetryCheckpoint(ctx, requests.Request{Reason: "start of the job", Export: true}); err != nil {
			return err
		}
	}
	term.Leading()
	return c.serve(ctx)
}

// RetryCheckpoint makes a checkpoint, however often it fails.
func (c *Chief) RetryCheckpoint(ctx context.Context, why requests.Request) error {
	pauses := retry.New(PauseAfterError, 10*time.Second)
	for {
		if err := c.Trainer.Shards.Wait(ctx); err != nil {
			return err
		}
		// A shard says that it is ready a moment before it takes commands.
		if err := (&cut.Cutter{Job: c.Trainer.cutJob()}).Reachable(ctx); err != nil {
			c.Trainer.Log.Debug("a shard takes no commands yet", "err", err)
			if err := retry.Sleep(ctx, pauseBeforeCommands); err != nil {
				return err
			}
			continue
		}
		_, _, err := c.Checkpoint(ctx, why)
		c.Attempted(err)
		if err == nil {
			return nil
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

// Attempted tells the health state of checkpoints that fail one after the other.
func (c *Chief) Attempted(err error) {
	if c.attempts == nil {
		c.attempts = c.Trainer.Env.Health.Attempts(HealthCheckpoint)
	}
	if err == nil {
		c.attempts.Succeeded()
		return
	}
	c.attempts.Failed(err)
}

// serve makes checkpoints one after the other: by the clock, on request, on command.
func (c *Chief) serve(ctx context.Context) error {
	s := c.Trainer
	var clock <-chan time.Time
	if s.CheckpointEvery > 0 {
		t := time.NewTicker(s.CheckpointEvery)
		defer t.Stop()
		clock = t.C
	}
	look := time.NewTicker(endLook)
	defer look.Stop()
	topic := time.NewTicker(s.LookAtTopicEvery)
	defer topic.Stop()
	defer s.Env.Health.OK(HealthTopic)
	defer s.Env.Health.OK(HealthCheckpoint)
	for ctx.Err() == nil {
		changed := s.Requests.Changed()
		if err := c.AnswerOpen(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-look.C:
			if ends := Ends(s.job().Started.V); ends != nil && s.job().Paused.Seq == 0 && c.AtEnd(ctx, ends) {
				return c.finish(ctx, requests.Request{Reason: "end of the topic"})
			}
			if c.stepsDue(ctx) {
				c.saveRegularly(ctx, fmt.Sprintf("every %d steps", s.CheckpointSteps))
			}
		case <-topic.C:
			c.LookAtTopic(ctx)
		case <-clock:
			if c.HasProgress(ctx) {
				c.saveRegularly(ctx, "every "+s.CheckpointEvery.String())
			}
		case o := <-c.Asked:
			c.HandleRequests(ctx, o)
		}
	}
	return ctx.Err()
}

// saveRegularly makes a checkpoint that nobody has asked for, and every so often an export of it.
func (c *Chief) saveRegularly(ctx context.Context, reason string) {
	_, _, err := c.Checkpoint(ctx, requests.Request{Reason: reason, Export: (c.saved+1)%c.Trainer.ExportEvery == 0})
	if c.Attempted(err); err != nil {
		c.resume = time.Now().Add(c.failing.Next())
		return
	}
	c.saved++
	c.failing.Reset()
}

// stepsDue says whether as many steps are learnt since the timeline's last checkpoint as one is made after.
func (c *Chief) stepsDue(ctx context.Context) bool {
	s := c.Trainer
	all := c.job().Restorable()
	if s.CheckpointSteps == 0 || len(all) == 0 || time.Now().Before(c.resume) {
		return false
	}
	now, err := s.Shards.GlobalStep(ctx)
	return err == nil && now >= all[0].Step()+uint64(s.CheckpointSteps)
}

// HandleRequests makes one checkpoint for all who wait for one.
func (c *Chief) HandleRequests(ctx context.Context, first Order) {
	all, one := []Order{first}, first
	for more := true; more; {
		select {
		case o := <-c.Asked:
			all, one.Export, one.Keep = append(all, o), one.Export || o.Export, one.Keep || o.Keep
		default:
			more = false
		}
	}
	done := c.HandleRequest(bus.WithAsked(ctx, one.asked), one)
	for _, o := range all {
		o.Done <- done
	}
}

// HandleRequest makes the checkpoint of a command, and tries again, while the shards cannot make
// it, for as long as somebody waits for the answer.
func (c *Chief) HandleRequest(ctx context.Context, o Order) Answer {
	until := time.Now().Add(CommandPatience)
	for {
		id, seq, err := c.Checkpoint(ctx, requests.Request{Reason: o.Reason, Export: o.Export, Keep: o.Keep})
		if err != nil && ctx.Err() != nil {
			return Answer{id, seq, fmt.Errorf("%w: %w", cut.ErrTermEnded, err)}
		}
		if err == nil || !cut.Passes(err) || time.Now().After(until) {
			return Answer{id, seq, err}
		}
		select {
		case <-o.Gone:
			return Answer{id, seq, err}
		default:
			_ = retry.Sleep(ctx, PauseAfterError) // the next attempt tells why it ended
		}
	}
}

// CommandPatience bounds the attempts at what one command asks.
const CommandPatience = 20 * time.Second

// HasProgress says whether anything was learnt since the last checkpoint.
func (c *Chief) HasProgress(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, CommandPatience)
	defer cancel()
	j := c.job()
	all, err := c.Trainer.Shards.Offsets(ctx)
	if err != nil || len(j.Checkpoints) == 0 {
		return true // the attempt says what is wrong
	}
	last := j.Checkpoints[len(j.Checkpoints)-1].V.GetOffsets()
	for p := range j.Started.V.GetPartitions() {
		for _, o := range all {
			if o.Next[p] != last[p] {
				return true
			}
		}
	}
	return false
}

const endLook = 200 * time.Millisecond

// AtEnd says whether every shard has learnt every partition to its end.
func (c *Chief) AtEnd(ctx context.Context, ends []int64) bool {
	ctx, cancel := context.WithTimeout(ctx, CommandPatience)
	defer cancel()
	all, err := c.Trainer.Shards.Offsets(ctx)
	if err != nil {
		return false
	}
	for p, next := range shards.Least(all, int32(len(ends))) {
		if next < ends[p] {
			return false
		}
	}
	return true
}

// ParkRefused parks the requests that were refused.
func (c *Chief) ParkRefused(ctx context.Context) error {
	s := c.Trainer
	var refused []bus.Parked
	s.Requests.Read(func(r requests.State) { refused = append(refused, r.Refused...) })
	for _, p := range refused {
		if p.StreamSeq <= s.parked {
			continue
		}
		if _, err := s.Env.Bus.DeadLetters().Park(ctx, p); err != nil {
			return fmt.Errorf("park request %d: %w", p.StreamSeq, err)
		}
		s.parked = p.StreamSeq
	}
	return nil
}

// Open are the requests that the chief has yet to answer, the oldest first.
func (s *Trainer) Open() (open []requests.Request) {
	s.Requests.Read(func(r requests.State) { open = append(open, r.Open...) })
	return open
}

// AnswerOpen parks what was refused and does what was requested.
func (c *Chief) AnswerOpen(ctx context.Context) error {
	s := c.Trainer
	for {
		if err := c.ParkRefused(ctx); err != nil {
			return err
		}
		open := s.Open()
		if len(open) == 0 {
			return nil
		}
		if open[0].Stop {
			return c.finish(ctx, open[0])
		}
		_, seq, err := c.Checkpoint(ctx, open[0])
		if err != nil && seq == 0 {
			return err // not even the failure could be said
		}
		if err := s.Requests.Wait(ctx, seq); err != nil {
			return err
		}
	}
}

// finish makes the last checkpoint and ends the job.
func (c *Chief) finish(ctx context.Context, why requests.Request) error {
	why.Export = true
	last := why
	last.ID = "" // the checkpoint does not answer it, the end does
	if err := c.RetryCheckpoint(ctx, last); err != nil {
		return err
	}
	_, _, err := c.append(ctx, why, func(j lineage.Job) []*training.Event {
		return []*training.Event{{Body: &training.Event_JobStopped{JobStopped: &training.JobStopped{
			Reason: cmp.Or(why.Reason, "on request"), Offsets: j.Checkpoints[len(j.Checkpoints)-1].V.GetOffsets(),
		}}}}
	})
	if err != nil {
		return err
	}
	c.Trainer.Log.Info("the job is stopped", "reason", why.Reason)
	return ErrStopped
}

// append stores facts of the job where what decide read is expected to be the last.
func (c *Chief) append(ctx context.Context, why requests.Request, decide func(lineage.Job) []*training.Event) ([]bus.Draft, []uint64, error) {
	s := c.Trainer
	subject := training.Subject(s.Env.BZID, s.Job)
	st := role.Store{Log: s.Env.Bus.Log(), Source: Author, Wait: s.Lineage.Wait}
	return st.Append(ctx, func() ([]bus.Draft, error) {
		if err := ctx.Err(); err != nil {
			return nil, err // the lease may be another's by now
		}
		j := c.job()
		var drafts []bus.Draft
		for _, e := range decide(j) {
			drafts = append(drafts, bus.Draft{Subject: subject, Event: e, Expect: j.Seq, Header: events.Header{
				Causation: why.ID, Correlation: why.Correlation, Traceparent: why.Traceparent,
			}})
		}
		return drafts, nil
	})
}

// Checkpoint makes a cut and appends what came of it; seq is that fact's sequence, also
// of a failure. What a failed attempt has written stays without a name: its id is claimed,
// so nothing is ever written over.
func (c *Chief) Checkpoint(ctx context.Context, why requests.Request) (id int64, seq uint64, err error) {
	s := c.Trainer
	begin := time.Now()
	j := c.job()
	id, facts, err := c.make(ctx, why)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil { // stopped, or no longer chief: another one will make it
			return id, 0, err
		}
		s.Failed.Inc()
		if id == 0 { // nothing was written
			id = j.LastID + 1
		} else {
			s.Folder().Discard(id)
			shards := s.cutJob()
			if err := shards.Discard(ctx, c.epoch, []int64{id}, []int64{id}); err != nil {
				s.Log.Warn("what a failed checkpoint has left is not deleted from every shard's disk", "checkpoint", id, "err", err)
			}
		}
		s.Log.Error("checkpoint failed", "checkpoint", id, "err", err)
		facts = []*training.Event{{Body: &training.Event_CheckpointFailed{CheckpointFailed: &training.CheckpointFailed{Id: id, Reason: err.Error()}}}}
		_, seqs, aerr := c.append(ctx, why, func(lineage.Job) []*training.Event { return facts })
		if aerr != nil {
			return id, 0, errors.Join(err, aerr)
		}
		return id, seqs[0], err
	}
	_, seqs, err := c.append(ctx, why, func(now lineage.Job) []*training.Event {
		if now.LastID != id || now.Restored != j.Restored {
			return nil // ours stands for nothing
		}
		return append(facts, s.keeps(now, why, id, begin)...)
	})
	if err == nil && len(seqs) == 0 {
		err = fmt.Errorf("checkpoint %d: another chief has begun one meanwhile, or the job has returned to an earlier one", id)
	}
	if err != nil {
		return id, 0, err
	}
	s.Saved.Inc()
	s.Log.Info("checkpoint saved", "checkpoint", id, "export", why.Export, "reason", why.Reason, "took", time.Since(begin))
	c.sweepNow(ctx)
	c.commit(ctx, facts[0].GetCheckpointSaved().GetCheckpoint())
	return id, seqs[0], nil
}

// make writes a checkpoint, and an export of it, under an id of their own, which is 0 when
// the attempt ended before anything was written.
func (c *Chief) make(ctx context.Context, why requests.Request) (id int64, _ []*training.Event, _ error) {
	c.cuts++
	ct := cut.Cutter{Job: c.Trainer.cutJob(), Chief: c.epoch, Name: fmt.Sprintf("%s-%d-%d", c.Trainer.Name, c.epoch, c.cuts)}
	made, err := ct.Make(ctx, why.Export, func(ctx context.Context) (int64, error) { return c.Claim(ctx, why) })
	if err != nil {
		return ct.ID, nil, err
	}
	if err := ct.Verify(ctx, made.Checkpoint); err != nil {
		return ct.ID, nil, err
	}
	if err := cut.Info(made.Checkpoint); err != nil {
		return ct.ID, nil, err
	}
	made.Checkpoint.LeaderEpochs = c.Trainer.LeaderEpochs(ctx, made.Checkpoint.GetOffsets())
	facts := []*training.Event{{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{
		Checkpoint: made.Checkpoint, Reason: why.Reason,
		RemovedCheckpoints: slices.Clone(c.swept.Checkpoints), RemovedExports: slices.Clone(c.swept.Exports),
	}}}}
	if !why.Export {
		return ct.ID, facts, nil
	}
	engine := c.Engine().Engine
	exported, err := ct.Entry(made, engine, c.Trainer.warmUp(ctx, engine.Spec()))
	if err != nil {
		return ct.ID, nil, err
	}
	return ct.ID, append(facts, &training.Event{Body: &training.Event_ModelExported{ModelExported: exported}}), nil
}

// Claim takes the next checkpoint id for this attempt alone: of two chiefs that claim one,
// the log gives it to the first.
func (c *Chief) Claim(ctx context.Context, why requests.Request) (id int64, err error) {
	_, _, err = c.append(ctx, why, func(now lineage.Job) []*training.Event {
		id = now.LastID + 1
		return []*training.Event{{Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: id, Reason: why.Reason}}}}
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// HandleCheckpoint answers trainer.<job>.checkpoint.
func (c *Chief) HandleCheckpoint(ctx context.Context, payload []byte) ([]byte, error) {
	var body struct {
		Reason string `json:"reason"`
		Export bool   `json:"export"`
		Keep   bool   `json:"keep"`
	}
	if err := role.DecodeJSON(payload, &body, `{"reason":"before the upgrade","export":true,"keep":true}`); err != nil {
		return nil, err
	}
	a, err := c.order(ctx, Order{Reason: cmp.Or(body.Reason, "on command"), Export: body.Export, Keep: body.Keep})
	if err != nil {
		return nil, err
	}
	return a.Reply()
}

// order has the chief make a checkpoint, and waits for what comes of it until ctx ends.
func (c *Chief) order(ctx context.Context, o Order) (Answer, error) {
	o.asked, o.Done, o.Gone = bus.AskedOf(ctx), make(chan Answer, 1), ctx.Done()
	select {
	case c.Asked <- o:
	case <-ctx.Done():
		return Answer{}, bus.Refuse(bus.CodeUnavailable, "another checkpoint is being made, or not all shards are ready: ask again")
	}
	select {
	case a := <-o.Done:
		return a, nil
	case <-ctx.Done():
		return Answer{}, bus.Refuse(bus.CodeUnavailable, "the checkpoint is under way, look for checkpointSaved on training.%s", c.Trainer.Job)
	}
}

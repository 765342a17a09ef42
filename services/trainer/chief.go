package trainer

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
	"github.com/monolith-go/monolith/services/trainer/internal/hold"
	"github.com/monolith-go/monolith/services/trainer/requests"
	"github.com/monolith-go/monolith/services/trainer/shards"
)

const (
	pauseAfterError     = time.Second           // between attempts at what the chief leads
	pauseBeforeCommands = 20 * time.Millisecond // a shard that is ready takes commands within about this time
)

// chief is the one trainer of a job that makes its checkpoints and appends its facts.
type chief struct {
	s        *Server
	epoch    uint64
	attempts *health.Attempts // at a checkpoint
	cuts     int              // attempts, so that each cut has a name of its own
	saved    int              // checkpoints of the clock since the last export
	asked    chan checkpointOrder
	swept    cut.Swept // what the next checkpoint says was deleted

	committed role.LastLogged // what became of telling Kafka about a cut
}

// checkpointOrder is a checkpoint that somebody waits for.
type checkpointOrder struct {
	reason string
	export bool
	done   chan answer
	gone   <-chan struct{} // closed once nobody waits for done
}

type answer struct {
	id  int64
	seq uint64
	err error
}

// reply is what the caller hears.
func (a answer) reply() ([]byte, error) {
	switch {
	case a.err != nil && cut.Passes(a.err):
		return nil, bus.Refuse(bus.CodeUnavailable, "checkpoint %d failed: %v: ask again", a.id, a.err)
	case a.err != nil:
		return nil, bus.Refuse(bus.CodeInternal, "checkpoint %d failed: %v", a.id, a.err)
	}
	return json.Marshal(map[string]any{"checkpoint": a.id, "seq": a.seq})
}

// lead is the job's chief while this trainer holds the chief's lease, again and again until
// ctx ends or the job is stopped.
func (s *Server) lead(ctx context.Context) error {
	return bus.Lead(ctx, bus.Leadership{
		Leases: s.env.Bus.Leases(), Lease: s.lease("chief"), Holder: s.cfg.Name, TTL: s.cfg.LeaseTTL,
		Log: s.log, Health: s.env.Health, Problem: healthChief,
	}, func(ctx context.Context, term bus.Term) error {
		s.log.Info("chief of the job", "epoch", term.Epoch)
		return (&chief{s: s, epoch: term.Epoch, asked: make(chan checkpointOrder)}).run(ctx, term)
	})
}

// errStopped ends the leadership: the job was stopped.
var errStopped = fmt.Errorf("the job was stopped: %w", bus.ErrResigned)

// run is one term.
func (c *chief) run(ctx context.Context, term bus.Term) error {
	s := c.s
	held := &hold.Job{
		Name: s.cfg.Job, Lineage: s.lineage, Fleet: s.fleet, Requests: s.requests, Shards: s.shards, Log: s.log,
		Takes: s.takesPart, Append: c.append,
	}
	stop, err := s.env.Bus.Commands().Serve(ctx, bus.Service{
		BZID: s.env.BZID, Name: "trainer." + events.Escape(s.cfg.Job), Version: "1.0.0",
		Description: "checkpoints, pauses and status of training job " + s.cfg.Job,
		Endpoints: map[string]bus.Handler{
			"checkpoint": c.handleCheckpoint,
			"restore":    c.handleRestore,
			"pause":      held.HandlePause,
			"resume":     held.HandleResume,
			"status":     held.HandleStatus,
			"state":      role.State(map[string]role.View{lineage.Name: s.lineage}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve commands: %w", err)
	}
	defer stop()
	ctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { held.Run(ctx) })
	c.controlled(ctx, held, &beside)
	defer beside.Wait()
	defer end()
	if err := c.begin(ctx); err != nil { // the commands are there meanwhile: one brings shards back
		return err
	}
	if j := c.job(); len(j.Checkpoints) == 0 || len(j.Exports) == 0 { // so that there is a model to load from the first step on
		if err := c.retryCheckpoint(ctx, requests.Request{Reason: "start of the job", Export: true}); err != nil {
			return err
		}
	}
	term.Leading()
	return c.serve(ctx)
}

// retryCheckpoint makes a checkpoint, however often it fails.
func (c *chief) retryCheckpoint(ctx context.Context, why requests.Request) error {
	pauses := retry.New(pauseAfterError, 10*time.Second)
	for {
		if err := c.s.shards.Wait(ctx); err != nil {
			return err
		}
		// A shard says that it is ready a moment before it takes commands.
		if err := (&cut.Cutter{Job: c.s.cutJob()}).Reachable(ctx); err != nil {
			c.s.log.Debug("a shard takes no commands yet", "err", err)
			if err := retry.Sleep(ctx, pauseBeforeCommands); err != nil {
				return err
			}
			continue
		}
		_, _, err := c.checkpoint(ctx, why)
		c.attempted(err)
		if err == nil {
			return nil
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

// attempted tells the health state of checkpoints that fail one after the other.
func (c *chief) attempted(err error) {
	if c.attempts == nil {
		c.attempts = c.s.env.Health.Attempts(healthCheckpoint)
	}
	if err == nil {
		c.attempts.Succeeded()
		return
	}
	c.attempts.Failed(err)
}

// serve makes checkpoints one after the other: by the clock, on request, on command.
func (c *chief) serve(ctx context.Context) error {
	s := c.s
	var clock <-chan time.Time
	if s.cfg.CheckpointEvery > 0 {
		t := time.NewTicker(s.cfg.CheckpointEvery)
		defer t.Stop()
		clock = t.C
	}
	look := time.NewTicker(endLook)
	defer look.Stop()
	topic := time.NewTicker(s.lookAtTopicEvery)
	defer topic.Stop()
	defer s.env.Health.OK(healthTopic)
	defer s.env.Health.OK(healthCheckpoint)
	for ctx.Err() == nil {
		changed := s.requests.Changed()
		if err := c.answer(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-look.C:
			if ends := endsOf(s.job().Started.V); ends != nil && !s.paused() && c.atEnd(ctx, ends) {
				return c.finish(ctx, requests.Request{Reason: "end of the topic"})
			}
		case <-topic.C:
			c.lookAtTopic(ctx)
		case <-clock:
			if !c.hasProgress(ctx) {
				continue
			}
			c.saved++
			export := c.saved%s.cfg.ExportEvery == 0
			_, _, err := c.checkpoint(ctx, requests.Request{Reason: "every " + s.cfg.CheckpointEvery.String(), Export: export})
			c.attempted(err)
		case o := <-c.asked:
			c.handleRequests(ctx, o)
		}
	}
	return ctx.Err()
}

// handleRequests makes one checkpoint for all who wait for one.
func (c *chief) handleRequests(ctx context.Context, first checkpointOrder) {
	all, one := []checkpointOrder{first}, first
	for more := true; more; {
		select {
		case o := <-c.asked:
			all, one.export = append(all, o), one.export || o.export
		default:
			more = false
		}
	}
	done := c.handleRequest(ctx, one)
	for _, o := range all {
		o.done <- done
	}
}

// handleRequest makes the checkpoint of a command, and tries again, while the shards cannot make
// it, for as long as somebody waits for the answer.
func (c *chief) handleRequest(ctx context.Context, o checkpointOrder) answer {
	until := time.Now().Add(commandPatience)
	for {
		id, seq, err := c.checkpoint(ctx, requests.Request{Reason: o.reason, Export: o.export})
		if err != nil && ctx.Err() != nil {
			return answer{id, seq, fmt.Errorf("%w: %w", cut.ErrTermEnded, err)}
		}
		if err == nil || !cut.Passes(err) || time.Now().After(until) {
			return answer{id, seq, err}
		}
		select {
		case <-o.gone:
			return answer{id, seq, err}
		default:
			_ = retry.Sleep(ctx, pauseAfterError) // the next attempt tells why it ended
		}
	}
}

// commandPatience bounds the attempts at what one command asks.
const commandPatience = 20 * time.Second

// hasProgress says whether anything was learnt since the last checkpoint.
func (c *chief) hasProgress(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	j := c.job()
	all, err := c.s.shards.Offsets(ctx)
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

// atEnd says whether every shard has learnt every partition to its end.
func (c *chief) atEnd(ctx context.Context, ends []int64) bool {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	all, err := c.s.shards.Offsets(ctx)
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

// parkRefused parks the requests that were refused.
func (c *chief) parkRefused(ctx context.Context) error {
	s := c.s
	var refused []bus.Parked
	s.requests.Read(func(r requests.State) { refused = append(refused, r.Refused...) })
	for _, p := range refused {
		if p.StreamSeq <= s.parked {
			continue
		}
		if _, err := s.env.Bus.DeadLetters().Park(ctx, p); err != nil {
			return fmt.Errorf("park request %d: %w", p.StreamSeq, err)
		}
		s.parked = p.StreamSeq
	}
	return nil
}

// open are the requests that the chief has yet to answer, the oldest first.
func (s *Server) open() (open []requests.Request) {
	s.requests.Read(func(r requests.State) { open = append(open, r.Open...) })
	return open
}

// answer parks what was refused and does what was requested.
func (c *chief) answer(ctx context.Context) error {
	s := c.s
	for {
		if err := c.parkRefused(ctx); err != nil {
			return err
		}
		open := s.open()
		if len(open) == 0 {
			return nil
		}
		if open[0].Stop {
			return c.finish(ctx, open[0])
		}
		_, seq, err := c.checkpoint(ctx, open[0])
		if err != nil && seq == 0 {
			return err // not even the failure could be said
		}
		if err := s.requests.Wait(ctx, seq); err != nil {
			return err
		}
	}
}

// finish makes the last checkpoint and ends the job.
func (c *chief) finish(ctx context.Context, why requests.Request) error {
	why.Export = true
	last := why
	last.ID = "" // the checkpoint does not answer it, the end does
	if err := c.retryCheckpoint(ctx, last); err != nil {
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
	c.s.log.Info("the job is stopped", "reason", why.Reason)
	return errStopped
}

func (c *chief) job() lineage.Job { return c.s.job() }

// append stores facts of the job where what decide read is expected to be the last.
func (c *chief) append(ctx context.Context, why requests.Request, decide func(lineage.Job) []*training.Event) ([]bus.Draft, []uint64, error) {
	s := c.s
	subject := training.Subject(s.env.BZID, s.cfg.Job)
	st := role.Store{Log: s.env.Bus.Log(), Source: author, Wait: s.lineage.Wait}
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

// checkpoint makes a cut and appends what came of it; seq is that fact's sequence, also
// of a failure. What a failed attempt has written stays without a name: its id is claimed,
// so nothing is ever written over.
func (c *chief) checkpoint(ctx context.Context, why requests.Request) (id int64, seq uint64, err error) {
	s := c.s
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
		s.m.failures.Inc()
		if id == 0 { // nothing was written
			id = j.LastID + 1
		} else {
			s.folder().Discard(id)
		}
		s.log.Error("checkpoint failed", "checkpoint", id, "err", err)
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
		return facts
	})
	if err == nil && len(seqs) == 0 {
		err = fmt.Errorf("checkpoint %d: another chief has begun one meanwhile, or the job has returned to an earlier one", id)
	}
	if err != nil {
		return id, 0, err
	}
	s.m.checkpoints.Inc()
	s.log.Info("checkpoint saved", "checkpoint", id, "export", why.Export, "reason", why.Reason, "took", time.Since(begin))
	c.swept.Told(c.job())
	s.sweep(c.job(), &c.swept)
	c.commit(ctx, facts[0].GetCheckpointSaved().GetCheckpoint())
	return id, seqs[0], nil
}

// make writes a checkpoint, and an export of it, under an id of their own, which is 0 when
// the attempt ended before anything was written.
func (c *chief) make(ctx context.Context, why requests.Request) (id int64, _ []*training.Event, _ error) {
	c.cuts++
	ct := cut.Cutter{Job: c.s.cutJob(), Chief: c.epoch, Name: fmt.Sprintf("%s-%d-%d", c.s.cfg.Name, c.epoch, c.cuts)}
	made, err := ct.Make(ctx, why.Export, func(ctx context.Context) (int64, error) { return c.claim(ctx, why) })
	if err != nil {
		return ct.ID, nil, err
	}
	made.Checkpoint.LeaderEpochs = c.s.leaderEpochs(ctx, made.Checkpoint.GetOffsets())
	facts := []*training.Event{{Body: &training.Event_CheckpointSaved{CheckpointSaved: &training.CheckpointSaved{
		Checkpoint: made.Checkpoint, Reason: why.Reason,
		RemovedCheckpoints: slices.Clone(c.swept.Checkpoints), RemovedExports: slices.Clone(c.swept.Exports),
	}}}}
	if !why.Export {
		return ct.ID, facts, nil
	}
	exported, err := ct.Entry(made, c.s.engine.Engine)
	if err != nil {
		return ct.ID, nil, err
	}
	return ct.ID, append(facts, &training.Event{Body: &training.Event_ModelExported{ModelExported: exported}}), nil
}

// claim takes the next checkpoint id for this attempt alone: of two chiefs that claim one,
// the log gives it to the first.
func (c *chief) claim(ctx context.Context, why requests.Request) (id int64, err error) {
	_, _, err = c.append(ctx, why, func(now lineage.Job) []*training.Event {
		id = now.LastID + 1
		return []*training.Event{{Body: &training.Event_CheckpointStarted{CheckpointStarted: &training.CheckpointStarted{Id: id, Reason: why.Reason}}}}
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// handleCheckpoint answers trainer.<job>.checkpoint.
func (c *chief) handleCheckpoint(ctx context.Context, payload []byte) ([]byte, error) {
	var body struct {
		Reason string `json:"reason"`
		Export bool   `json:"export"`
	}
	if err := role.DecodeJSON(payload, &body, `{"reason":"before the upgrade","export":true}`); err != nil {
		return nil, err
	}
	a, err := c.order(ctx, cmp.Or(body.Reason, "on command"), body.Export)
	if err != nil {
		return nil, err
	}
	return a.reply()
}

// order has the chief make a checkpoint, and waits for what comes of it until ctx ends.
func (c *chief) order(ctx context.Context, reason string, export bool) (answer, error) {
	o := checkpointOrder{reason: reason, export: export, done: make(chan answer, 1), gone: ctx.Done()}
	select {
	case c.asked <- o:
	case <-ctx.Done():
		return answer{}, bus.Refuse(bus.CodeUnavailable, "another checkpoint is being made, or not all shards are ready: ask again")
	}
	select {
	case a := <-o.done:
		return a, nil
	case <-ctx.Done():
		return answer{}, bus.Refuse(bus.CodeUnavailable, "the checkpoint is under way, look for checkpointSaved on training.%s", c.s.cfg.Job)
	}
}

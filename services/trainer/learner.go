package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/health"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// learner learns one partition while its lease is held.
type learner struct {
	s         *Server
	partition int32
	epoch     uint64
	reader    *kafka.Reader
	step      *step
	turns     turns
	told      bool // partitionTaken was appended
	steps     uint64

	odd      int  // records in a row that could not be learnt by themselves
	diverged bool // healthFailed was appended, and nothing was learnt since
}

const (
	pauseAfterError     = time.Second           // of the chief, between attempts at what it leads
	longestPause        = 10 * time.Second      // between attempts at a partition
	unsettled           = 20                    // of those that are no failure when a shard comes back
	pauseBeforeCommands = 20 * time.Millisecond // a shard that is ready takes commands within about this time
	settle              = 20 * time.Millisecond
)

// run learns until soft ends. hard, which ends later or with the lease, covers what must
// not be broken off half-way: a batch that some shard may have applied.
func (l *learner) run(soft, hard context.Context) {
	defer l.reader.Close()
	defer l.s.env.Health.OK(l.named("learning"))
	defer l.s.env.Health.OK(l.named("reading"))
	defer l.s.env.Health.OK(healthLetters)
	log := l.s.log.With("partition", l.partition, "epoch", l.epoch)
	t := newTries()
	for soft.Err() == nil {
		steps := l.steps
		err := l.runOnce(soft, hard)
		if soft.Err() != nil {
			return
		}
		if l.steps > steps { // some of it went well
			t.well()
		}
		wait, tell := t.failed(err)
		switch code := refusal(err); {
		case errors.Is(err, errDone):
			log.Info("the partition is learnt to its end")
			l.awaitWork(soft)
			t.well()
			continue
		case errors.Is(err, errMoved):
		case code == rowwire.Fenced:
			log.Warn("another trainer has the partition, giving it up", "err", err)
			return
		case unsettles(code):
			log.Info("taking the partition up again where the shards stand", "err", err)
		case lost(err):
			log.Error("the log is not the one that was learnt from: nothing is skipped, the partition stands still", "err", err)
			l.reading(err)
		default:
			log.Error("the partition cannot be learnt, trying again", "err", err)
		}
		if tell {
			l.s.env.Health.Fail(l.named("learning"), err)
		}
		l.s.m.rewinds.Inc()
		if wait.Wait(soft) != nil {
			return
		}
	}
}

// tries counts the attempts at a partition that failed in a row, and paces them.
type tries struct {
	pauses, settling   *retry.Backoff
	failures, unsteady int // the latter are no failures when a shard comes back
}

func newTries() *tries {
	return &tries{pauses: retry.New(settle, longestPause), settling: retry.New(settle, 25*settle)}
}

func (t *tries) well() {
	t.pauses.Reset()
	t.settling.Reset()
	t.failures, t.unsteady = 0, 0
}

// failed notes how an attempt ended: with what pause the next one is made, and whether people
// should see it.
func (t *tries) failed(err error) (wait *retry.Backoff, tell bool) {
	wait = t.pauses
	t.failures++
	switch {
	case errors.Is(err, errMoved):
		wait = t.settling
		t.failures--
	case unsettles(refusal(err)):
		wait = t.settling
		if t.unsteady++; t.unsteady < unsettled {
			t.failures--
		}
	}
	return wait, t.failures >= health.Reported || errors.Is(err, errDiverged)
}

// unsettles says whether a shard refuses because it, or another, came back.
func unsettles(code rowwire.Code) bool {
	return code == rowwire.Gap || code == rowwire.Overlap || code == rowwire.WrongGeneration
}

// named is the partition's name in the health state.
func (l *learner) named(what string) string {
	return fmt.Sprintf("%s %s/%d", what, l.s.cfg.Topic, l.partition)
}

// reading tells the health state what keeps the partition from being read.
func (l *learner) reading(err error) {
	if err == nil {
		l.s.env.Health.OK(l.named("reading"))
		return
	}
	l.s.env.Health.Fail(l.named("reading"), err)
}

// lost says whether the log no longer holds what the job's offsets name.
func lost(err error) bool {
	return errors.Is(err, kafka.ErrOutOfRange) || errors.Is(err, kafka.ErrTruncated) ||
		errors.Is(err, kafka.ErrTopicChanged) || errors.Is(err, kafka.ErrCorrupt)
}

func refusal(err error) rowwire.Code {
	var e *rowwire.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// runOnce finds out where the shards stand and learns from there on.
func (l *learner) runOnce(soft, hard context.Context) error {
	if err := l.s.shards.wait(soft); err != nil {
		return err
	}
	// From here on a shard that comes back as another ends the work, so that what it
	// lost is learnt again even when nothing new arrives.
	followed, stop := l.s.shards.follow(soft)
	defer stop()
	if l.s.cfg.Deterministic {
		// A batch that was under way belongs to a timeline that a shard has left: it
		// may wait there for a turn that never comes again.
		var broken context.CancelFunc
		hard, broken = context.WithCancel(hard)
		defer broken()
		defer context.AfterFunc(followed, func() {
			if errors.Is(context.Cause(followed), errMoved) {
				broken()
			}
		})()
	}
	err := l.resume(followed, hard)
	if err != nil && errors.Is(context.Cause(followed), errMoved) && refusal(err) != rowwire.Fenced {
		return errMoved
	}
	return err
}

// awaitWork waits at the end of a bounded partition until a shard has lost some of it.
func (l *learner) awaitWork(ctx context.Context) {
	followed, stop := l.s.shards.follow(ctx)
	defer stop()
	all, err := l.s.shards.offsets(followed)
	if err == nil && positionOf(all, l.partition).from >= l.end() {
		<-followed.Done()
	}
}

// resume learns on resume where the shards stand now.
func (l *learner) resume(soft, hard context.Context) error {
	all, err := l.s.shards.offsets(soft)
	if err != nil {
		return err
	}
	pos := positionOf(all, l.partition)
	if !l.told {
		if err := l.s.tell(soft, &training.Event{Body: &training.Event_PartitionTaken{PartitionTaken: &training.PartitionTaken{
			Partition: l.partition, Epoch: l.epoch, Trainer: l.s.cfg.Name, From: pos.from,
		}}}); err != nil {
			return fmt.Errorf("say that the partition is taken: %w", err)
		}
		l.told = true
	}
	if err := l.checkLog(soft, pos.from); err != nil {
		return err
	}
	if l.s.cfg.Deterministic {
		return l.learnDeterministic(soft, hard, pos)
	}
	return l.learnUnordered(soft, hard, pos)
}

// start is where to read: a partition of which nothing was ever learnt begins with what
// the topic still has, any other exactly where it stopped. A shard that is back at the
// beginning, while others have gone on, gets what they got: from where the job began.
func (l *learner) start(ctx context.Context, pos position) (int64, error) {
	if pos.from > 0 {
		return pos.from, nil
	}
	if len(pos.cuts) > 0 {
		return l.s.job().Started.V.GetBegins()[l.partition], nil
	}
	first, _, err := l.reader.Bounds(ctx)
	return first, err
}

// end is where a bounded job stops learning the partition.
func (l *learner) end() int64 {
	ends := endsOf(l.s.job().Started.V)
	if ends == nil {
		return math.MaxInt64
	}
	return ends[l.partition]
}

func (l *learner) learnUnordered(soft, hard context.Context, pos position) error {
	read, err := l.start(soft, pos)
	if err != nil {
		return err
	}
	f := newFeed(soft, l.reader, read, l.reading)
	defer f.close()
	cuts := pos.cuts
	for next := pos.from; ; {
		for len(cuts) > 0 && cuts[0] <= next {
			cuts = cuts[1:]
		}
		limit := l.end()
		if next >= limit {
			return errDone
		}
		if len(cuts) > 0 {
			limit = min(limit, cuts[0])
		}
		recs, to, err := f.batch(soft, next, limit, l.s.cfg.Batch, l.s.cfg.Linger)
		if err != nil {
			return err
		}
		if err := l.halving(soft, hard, recs, next, to); err != nil {
			return err
		}
		next = to
	}
}

func (l *learner) learnDeterministic(soft, hard context.Context, pos position) error {
	if !pos.level {
		return l.rollback(soft, pos)
	}
	from, _ := l.turns.span(l.partition, (pos.from+l.turns.size-1)/l.turns.size)
	if pos.from != from && pos.from < l.end() {
		return fmt.Errorf("the shards stand at offset %d of partition %d, which is no multiple of the batch size %d: start the trainers with the batch size the job was begun with", pos.from, l.partition, l.turns.size)
	}
	if pos.from >= l.end() {
		return errDone
	}
	read, err := l.start(soft, pos)
	if err != nil {
		return err
	}
	f := newFeed(soft, l.reader, read, l.reading)
	defer f.close()
	for i := pos.from / l.turns.size; i < l.turns.batches(l.partition); i++ {
		from, to := l.turns.span(l.partition, i)
		recs, err := f.whole(soft, to)
		if err != nil {
			return err
		}
		if err := l.sifted(soft, hard, recs, from, to, at{l.turns.turn(l.partition, i), pos.generation}); err != nil {
			return err
		}
	}
	return errDone
}

// rollback sends every shard back to the newest checkpoint, because some of them have
// learnt what others have lost. Shards that already left the generation do nothing.
func (l *learner) rollback(ctx context.Context, pos position) error {
	l.s.log.Warn("the shards stand apart: rolling all of them back to the newest checkpoint",
		"partition", l.partition, "generation", pos.generation)
	body, err := json.Marshal(shardcmd.RollbackRequest{
		Generation: pos.generation,
		Reason:     "partition " + strconv.Itoa(int(l.partition)) + ": the shards stand apart",
	})
	if err != nil {
		return err
	}
	if err := l.s.shards.each(func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, commandTimeout)
		defer cancel()
		_, err := l.s.env.Bus.Commands().Call(ctx, l.s.env.BZID, shardcmd.Command(l.s.cfg.Job, i, shardcmd.Rollback), body)
		if err != nil {
			return fmt.Errorf("roll back shard %d: %w", i, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return errMoved
}

// at is where in a deterministic timeline a batch is learnt.
type at struct{ turn, generation uint64 }

// learn takes the records of [from, to) through one step. With an errGradients nothing
// of it was applied.
func (l *learner) learn(soft, hard context.Context, recs []kafka.Record, from, to int64, when at) error {
	begin := time.Now()
	st, sh := l.step, l.s.shards
	if err := st.load(recs); err != nil {
		return err
	}
	if st.trace != "" {
		var span trace.Span
		soft, span = l.s.tracer.Start(tracectx.With(soft, st.trace), "trainer.step", trace.WithAttributes(
			attribute.String("job", l.s.cfg.Job), attribute.Int("partition", int(l.partition)),
			attribute.Int64("from", from), attribute.Int64("to", to), attribute.Int("samples", st.samples()),
		))
		defer span.End()
	}
	res, err := l.gradients(soft, when)
	if err != nil {
		return err
	}
	for _, r := range st.bad {
		if err := l.park(soft, r); err != nil {
			return err
		}
	}
	if soft.Err() != nil {
		return context.Cause(soft) // nothing was applied yet
	}
	traceparent := tracectx.Of(soft)
	if st.trace == "" {
		traceparent = ""
	}
	err = sh.each(func(i int) error {
		parts := st.tells(i, rowwire.ApplyRequest{
			Job: sh.job, Shard: uint32(i), Partition: l.partition, Epoch: l.epoch, From: from, To: to,
			RecordUnix: st.newest, Turn: when.turn, Generation: when.generation, Traceparent: traceparent,
		})
		_, err := call(hard, sh, i, func(ctx context.Context, c rowwire.Conn) (struct{}, error) {
			for i := range parts { // all again where one did not arrive: the shard may have been another meanwhile
				if _, err := c.Apply(ctx, &parts[i]); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		return err
	})
	if err != nil {
		return err
	}
	l.steps++
	l.s.dense.learnt()
	l.s.env.Health.OK(l.named("learning"))
	l.s.m.learnt(st.e.Tasks(), st.batch, res, len(st.bad), time.Since(begin))
	return nil
}

// gradients computes those of the records that are loaded, and checks that shards take
// them.
func (l *learner) gradients(ctx context.Context, when at) (res runtime.Result, err error) {
	st := l.step
	if st.samples() == 0 && !l.s.cfg.Deterministic {
		return res, nil
	}
	w, err := l.fetch(ctx, when.turn, when.generation)
	if err != nil || st.samples() == 0 {
		return res, err
	}
	return st.train(w)
}

// fetch gets the rows of the batch and the dense variables side by side.
func (l *learner) fetch(ctx context.Context, turn, generation uint64) (w *runtime.Weights, err error) {
	st, sh := l.step, l.s.shards
	got := make(chan error, 1)
	go func() {
		var err error
		if l.s.cfg.Deterministic {
			w, err = fetchDense(ctx, sh, st.e, turn, generation)
		} else {
			w, err = l.s.dense.get(ctx)
		}
		got <- err
	}()
	err = sh.each(func(i int) error {
		p, ok := st.asks(i, rowwire.LookupRequest{Model: sh.job, Shard: uint32(i), Turn: turn, Generation: generation})
		if !ok {
			return nil
		}
		if _, err := call(ctx, sh, i, p.lookUp); err != nil {
			return err
		}
		if err := p.answer.Landed(p.rows, nil); err != nil {
			return fmt.Errorf("shard %d: %s", i, err) // without its code: the records are not to blame
		}
		return nil
	})
	err = errors.Join(err, <-got)
	return w, err
}

// lookUp is one attempt at the rows of a part.
func (p *part) lookUp(ctx context.Context, c rowwire.Conn) (struct{}, error) {
	p.answer.Into(p.rows, nil)
	return struct{}{}, c.LookupInto(ctx, &p.lookup, &p.answer)
}

// park puts a record that cannot be learnt into the dead letters before its offset
// counts as learnt.
func (l *learner) park(ctx context.Context, r rejected) error {
	p := bus.Parked{
		Reason: r.reason, By: source,
		Stream:    fmt.Sprintf("kafka:%s/%d", r.record.Topic, r.record.Partition),
		StreamSeq: uint64(r.record.Offset), Subject: r.record.Topic, Data: r.record.Value,
	}
	for _, k := range slices.Sorted(maps.Keys(r.record.Headers)) {
		if p.Header == nil {
			p.Header = map[string][]string{}
		}
		p.Header[k] = []string{r.record.Headers[k]}
	}
	pauses := retry.New(lookAgain, longestLook)
	attempts := l.s.env.Health.Attempts(healthLetters)
	for {
		_, err := l.s.env.Bus.DeadLetters().Park(ctx, p)
		if err == nil {
			attempts.Succeeded()
			return nil
		}
		if !bus.Retryable(err) || ctx.Err() != nil {
			return fmt.Errorf("park record %d: %w", r.record.Offset, err)
		}
		attempts.Failed(err)
		if pauses.Wait(ctx) != nil {
			return fmt.Errorf("park record %d: %w", r.record.Offset, err)
		}
	}
}

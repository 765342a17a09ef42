package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
)

// History is what the log says about one namespace and one job, read in one pass.
type History struct {
	Last        uint64           // sequence read up to
	Events      map[string]int64 // type -> count, in all namespaces
	Checkpoints []*training.Checkpoint
	Exports     []*training.ModelExported
	Ready       map[uint32][]*shard.Ready // training shard -> its epochs, in order
	Applied     []Applied
	Lifetimes   []Lifetime
	Marks       []Mark
}

// Mark is something that went wrong, or began again, while the job ran.
type Mark struct {
	At   time.Time
	Text string
}

// Applied is one delta becoming visible in one serving replica.
type Applied struct {
	Model, SubModel, Container string
	SyncSeq                    uint64 // of the delta
	At                         time.Time
}

// Lifetime is a stretch of time in which a replica was known as AVAILABLE. To is zero
// while it lasts.
type Lifetime struct {
	Model, SubModel, Container string
	From, To                   time.Time
}

// ReadHistory reads the log from sequence 1 to until (0: to its present end).
func ReadHistory(ctx context.Context, log bus.Log, bzid, job string, until uint64) (*History, error) {
	h := &History{Events: map[string]int64{}, Ready: map[uint32][]*shard.Ready{}}
	last, err := log.Last(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	if until == 0 {
		until = last
	}
	if until > last {
		return nil, fmt.Errorf("the log ends at %d: sequence %d, which the report names, is not in it; check --nats", last, until)
	}
	if until == 0 {
		return h, nil
	}
	h.Last = until
	live, began := map[string]*life{}, map[string]int64{}
	err = log.Follow(ctx, 1, until, func(r events.Recorded) error {
		h.Events[typeOf(r)]++
		p, err := r.Subject.Parse()
		if err != nil || p.BZID != bzid || p.Request || r.Event == nil {
			return nil
		}
		switch e := r.Event.(type) {
		case *training.Event:
			if name, _, ofTrainer := strings.Cut(p.Aggregate, "/"); name == job && !ofTrainer {
				h.training(e)
			}
		case *shard.Event:
			if ready := e.GetReady(); ready != nil && ready.GetJob() == job {
				h.Ready[ready.GetShard()] = append(h.Ready[ready.GetShard()], ready)
				if ready.GetEpoch() > 1 {
					h.mark(r.Time, "training shard %d began again", ready.GetShard())
				}
			}
			if e.GetHealthFailed() != nil {
				h.mark(r.Time, "shard %s failed", p.Aggregate)
			}
		case *container.Event:
			h.container(began, p.Aggregate, e, r.Time)
		case *transfer.Event:
			d := e.GetDeltasApplied()
			for _, a := range d.GetApplied() {
				h.Applied = append(h.Applied, Applied{d.GetModelName(), d.GetSubModel(), d.GetContainer(), a.GetSyncSeq(), time.UnixMicro(a.GetUnixUs())})
			}
		case *replica.Event:
			l := live[p.Aggregate]
			if l == nil {
				l = new(life)
				live[p.Aggregate] = l
			}
			h.replica(l, e, r.Time)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log up to %d: %w", until, err)
	}
	for _, l := range live {
		h.end(l, time.Time{})
	}
	return h, nil
}

func (h *History) mark(at time.Time, format string, args ...any) {
	h.Marks = append(h.Marks, Mark{at, fmt.Sprintf(format, args...)})
}

// container notes what was lost, and which process is another than before; began is by id.
func (h *History) container(began map[string]int64, id string, e *container.Event, at time.Time) {
	if lost := e.GetLost(); lost != nil && !lost.GetLeft() {
		h.mark(at, "%s lost", id)
	}
	if c := e.GetReported().GetContainer(); c != nil && c.GetStartedUs() != 0 {
		if was := began[id]; was != 0 && was != c.GetStartedUs() {
			h.mark(at, "%s began again", id)
		}
		began[id] = c.GetStartedUs()
	}
}

// typeOf is what an event counts as.
func typeOf(r events.Recorded) string {
	switch {
	case r.Err == nil:
		return catalog.Type(r.Event)
	case errors.Is(r.Err, events.ErrUnknown):
		return "(unknown)"
	case errors.Is(r.Err, events.ErrInvalid):
		return "(invalid)"
	}
	return "(malformed)"
}

func (h *History) training(e *training.Event) {
	if c := e.GetCheckpointSaved(); c != nil {
		h.Checkpoints = append(h.Checkpoints, c.GetCheckpoint())
	}
	if x := e.GetModelExported(); x != nil {
		h.Exports = append(h.Exports, x)
	}
}

// life is the replica that an aggregate stands for just now.
type life struct {
	who  *replica.Replica
	from time.Time // zero: not available
}

func (h *History) replica(l *life, e *replica.Event, at time.Time) {
	available := func(s replica.State) {
		if s != replica.State_AVAILABLE {
			h.end(l, at)
		} else if l.from.IsZero() {
			l.from = at
		}
	}
	switch {
	case e.GetRegistered() != nil:
		who := e.GetRegistered().GetReplica()
		if l.who != nil && l.who.GetContainer() != who.GetContainer() {
			h.end(l, at)
		}
		l.who = who
		available(who.GetStat())
	case e.GetStateChanged() != nil:
		available(e.GetStateChanged().GetStat())
	case e.GetLost() != nil:
		h.end(l, at)
	}
}

// end closes a life at the given time; zero: it still lasts.
func (h *History) end(l *life, at time.Time) {
	if l.who == nil || l.from.IsZero() {
		l.from = time.Time{}
		return
	}
	sub := l.who.GetServerType()
	if sub == "ps" {
		sub = fmt.Sprintf("ps_%d", l.who.GetTask())
	}
	h.Lifetimes = append(h.Lifetimes, Lifetime{l.who.GetModelName(), sub, l.who.GetContainer(), l.from, at})
	l.from = time.Time{}
}

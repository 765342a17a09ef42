// Package fleet is the view of who is alive: containers with their resources, serving
// replicas with their addresses and states, and the training parameter-server shards.
package fleet

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/projections/internal/fold"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "fleet"
	Version = 3
)

// State is the fleet after the event at Seq. Lost members stay, with Alive or Healthy
// false, because their Seq guards the next append.
type State struct {
	Seq        uint64                      `json:"seq"`
	Containers map[string]Container        `json:"containers"` // by container id
	Replicas   map[string]Replica          `json:"replicas"`   // by "<model>/<type>:<task>/<replica>"
	Shards     map[string]map[uint32]Shard `json:"shards"`     // by job, then index
	Skipped    fold.Skipped                `json:"skipped,omitempty"`
}

// Container is one agent or training task.
type Container struct {
	Container events.JSON[*container.Container]        `json:"container,omitzero"` // as last reported; nil V: never
	Resource  events.JSON[*container.ResourceReported] `json:"resource,omitzero"`  // nil V: not since it was reported alive
	Alive     bool                                     `json:"alive"`
	Left      bool                                     `json:"left,omitempty"` // it is not alive because it said so itself
	Seq       uint64                                   `json:"seq"`            // last sequence of the container's literal subject: what the next append expects
}

// Replica is one serving copy of one sub-model.
type Replica struct {
	Replica events.JSON[*replica.Replica] `json:"replica,omitzero"` // with the newest state and version; nil V: never registered
	Alive   bool                          `json:"alive"`
	Seq     uint64                        `json:"seq"` // last sequence of the replica's literal subject: what the next append expects
}

// Shard is one training parameter-server shard.
type Shard struct {
	Ready   events.JSON[*shard.Ready] `json:"ready,omitzero"` // of the newest epoch; nil V: never ready
	Healthy bool                      `json:"healthy"`
	Machine MachineFailure            `json:"machine,omitzero"` // that lasts, of the newest epoch
	Seq     uint64                    `json:"seq"`              // last sequence of the shard's literal subject: what the next append expects
}

// MachineFailure is a check that the machine of a shard does not pass.
type MachineFailure struct {
	Seq    uint64 `json:"seq"` // of machineFailed; 0: the machine is well, as far as is known
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// New is the fleet before the first event.
func New() State {
	return State{Containers: map[string]Container{}, Replicas: map[string]Replica{}, Shards: map[string]map[uint32]Shard{}}
}

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State {
	p, readable, mine := fold.Enter(&s.Seq, &s.Skipped, r, "container", "replica", "shard")
	if !mine {
		return s
	}
	known := true
	switch p.Context {
	case "container":
		c := s.Containers[p.Aggregate]
		c.Seq = r.Seq
		known = !readable || c.apply(r)
		s.Containers[p.Aggregate] = c
	case "replica":
		c := s.Replicas[p.Aggregate]
		c.Seq = r.Seq
		known = !readable || c.apply(r)
		s.Replicas[p.Aggregate] = c
	case "shard":
		job, index, ok := ParseShard(p.Aggregate)
		if !ok {
			known = !readable
			break
		}
		if s.Shards[job] == nil {
			s.Shards[job] = map[uint32]Shard{}
		}
		c := s.Shards[job][index]
		c.Seq = r.Seq
		known = !readable || c.apply(r)
		s.Shards[job][index] = c
	}
	if !known {
		s.Skipped = s.Skipped.Count(fold.Unknown)
	}
	return s
}

// ParseShard takes the aggregate "<job>/ps:<index>" apart.
func ParseShard(aggregate string) (job string, index uint32, ok bool) {
	i := strings.LastIndex(aggregate, "/ps:")
	if i < 0 {
		return "", 0, false
	}
	digits := aggregate[i+len("/ps:"):]
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return "", 0, false
	}
	return aggregate[:i], uint32(n), true
}

// apply is false for a body it does not know; so are those below.
func (c *Container) apply(r events.Recorded) bool {
	e, _ := r.Event.(*container.Event)
	switch b := e.GetBody().(type) {
	case *container.Event_Reported:
		if !c.Alive {
			c.Resource.V = nil
		}
		c.Container.V, c.Alive, c.Left = b.Reported.GetContainer(), true, false
	case *container.Event_ResourceReported:
		c.Resource.V = b.ResourceReported
	case *container.Event_Lost:
		c.Alive, c.Left = false, b.Lost.GetLeft()
	default:
		return false
	}
	return true
}

func (c *Replica) apply(r events.Recorded) bool {
	e, _ := r.Event.(*replica.Event)
	switch b := e.GetBody().(type) {
	case *replica.Event_Registered:
		c.Replica.V, c.Alive = b.Registered.GetReplica(), true
	case *replica.Event_StateChanged:
		if c.Replica.V == nil {
			break // never registered: nothing to change
		}
		n := proto.CloneOf(c.Replica.V) // the event's own message is shared
		n.Stat, n.Version = b.StateChanged.GetStat(), b.StateChanged.GetVersion()
		c.Replica.V = n
	case *replica.Event_Lost:
		c.Alive = false
	default:
		return false
	}
	return true
}

func (c *Shard) apply(r events.Recorded) bool {
	e, _ := r.Event.(*shard.Event)
	switch b := e.GetBody().(type) {
	case *shard.Event_Ready:
		c.Ready.V, c.Healthy, c.Machine = b.Ready, true, MachineFailure{}
	case *shard.Event_HealthFailed:
		if c.current(b.HealthFailed.GetEpoch()) {
			c.Healthy = false
		}
	case *shard.Event_Stopped:
		if c.current(b.Stopped.GetEpoch()) {
			c.Healthy, c.Machine = false, MachineFailure{}
		}
	case *shard.Event_MachineFailed:
		if f := b.MachineFailed; c.current(f.GetEpoch()) {
			c.Machine = MachineFailure{Seq: r.Seq, Status: f.GetStatus().String(), Reason: f.GetReason()}
		}
	case *shard.Event_MachineRecovered:
		if c.current(b.MachineRecovered.GetEpoch()) {
			c.Machine = MachineFailure{}
		}
	default:
		return false
	}
	return true
}

// current is false for the last word of an epoch that already has a successor.
func (c *Shard) current(epoch uint64) bool { return epoch >= c.Ready.V.GetEpoch() }

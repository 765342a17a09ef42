// Package view is the ZooKeeper tree as a view: each event is one ordered list of
// operations on nodes, atomic at its sequence, and the sequence is the zxid. The bytes
// in the nodes are those that Monolith's Python services read and write. Clients' writes
// are proposals in the log, and this fold decides what becomes of them.
package view

import (
	"iter"
	"slices"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/internal/fold"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Name and Version identify the view's snapshots; Version rises with every change of
// State or of what Fold makes of a log.
const (
	Name    = "znode"
	Version = 5
)

// Reasons under which an event is skipped that says nothing wrong.
const (
	unnamable = "path" // its names make no path
	oversize  = "size" // it would make a node that is larger than nodes can be
)

// State is the tree after the event at Seq, which is its last zxid. Besides the nodes it
// remembers what later events leave out.
type State struct {
	Seq        uint64
	Containers map[string]Member                // by "<bzid>/<container id>"
	Replicas   map[string]znodedata.ReplicaMeta // by path
	Imports    map[string]Import                // by path: nodes that came from the ensemble
	Skipped    fold.Skipped

	tree.Reader // the nodes and sessions

	nodes   *tree.Tree
	cache   *cache
	effects Effects
}

// state is one of nodes and nothing else.
func state(nodes *tree.Tree) State {
	return State{
		Containers: map[string]Member{}, Replicas: map[string]znodedata.ReplicaMeta{},
		Reader: nodes.Reader(), nodes: nodes, cache: newCache(),
	}
}

// Effects are those of the event at Seq; none after a snapshot was restored.
func (s State) Effects() Effects { return s.effects }

// Member is what the tree knows of a live container.
type Member struct {
	Container events.JSON[*container.Container]        `json:"container"`
	Resource  events.JSON[*container.ResourceReported] `json:"resource,omitzero"`  // nil V: not reported yet
	Node      string                                   `json:"node,omitempty"`     // path of its own node; "": none yet
	Service   string                                   `json:"service,omitempty"`  // path below container_service; "": none
	Bindings  map[string]string                        `json:"bindings,omitempty"` // its AVAILABLE replicas -> paths below binding
}

// New is an empty tree, as ZooKeeper creates it.
func New() State { return state(tree.New()) }

// Fold returns the state after r, and consumes s. The same log folds to the same State.
func Fold(s State, r events.Recorded) State { return FoldIn("", s, r) }

// FoldIn is Fold into the tree of one namespace, "": of all. The events of other
// namespaces move on its sequence and nothing else: each namespace is a tree of its own.
func FoldIn(bzid string, s State, r events.Recorded) State {
	if e, _ := r.Event.(*znode.Event); e.GetPack() == nil {
		s.apply(bzid, &r)
		return s
	}
	for part := range Parts(r) {
		s.apply(bzid, &part)
	}
	return s
}

// Failed is the state after a record, or a part of one, whose fold panicked. What it did
// to the tree is taken back, and whoever proposed it hears that it did not happen.
func Failed(s State, r events.Recorded) State {
	s.nodes.Rollback()
	s.cache.ended()
	s.effects = Effects{}
	if e, ok := r.Event.(*znode.Event); ok {
		o := &tree.Outcome{Code: wire.RuntimeInconsistency, Multi: e.GetProposed().GetMulti()}
		for _, op := range e.GetProposed().GetOps() {
			o.Results = append(o.Results, tree.Result{Op: KindOf(op), Code: o.Code})
		}
		s.effects.Outcome = o
	}
	if !r.More {
		s.Seq = r.Seq
	}
	s.Skipped = s.Skipped.Count(fold.Panicked)
	return s
}

// Parts are the events of a pack, one record each; any other record is its only part.
func Parts(r events.Recorded) iter.Seq[events.Recorded] {
	return func(yield func(events.Recorded) bool) {
		e, _ := r.Event.(*znode.Event)
		if e.GetPack() == nil {
			yield(r)
			return
		}
		in := e.GetPack().GetEvents()
		for i, e := range in {
			r.Event, r.Part, r.More = e, i, i < len(in)-1
			if !yield(r) {
				return
			}
		}
	}
}

// apply folds one part. All parts have the zxid of the whole; the state is at that sequence
// once the last one is in.
func (s *State) apply(bzid string, r *events.Recorded) {
	s.effects = Effects{}
	if r.Seq <= s.Seq {
		return // redelivered
	}
	t, m := s.nodes, s.cache
	t.Thaw()
	if !r.More {
		s.Seq = r.Seq
	}
	p := m.subject(r.Subject)
	if bzid != "" && p.BZID != bzid && !p.foreign {
		return
	}
	t.Begin(r.Seq, r.Time.UnixMilli())
	m.tooLarge = false
	skip := fold.Subject
	if !p.foreign {
		skip = fold.Reason(r.Event != nil, r.Err)
	}
	if skip == "" && p.Request {
		return
	}
	known := true
	if skip == "" {
		d := domain{s: s, tree: t}
		ours := true
		switch e := r.Event.(type) {
		case *znode.Event:
			known = s.znode(p.BZID, e)
			ours = e.GetImported() == nil
		case *model.Event:
			known, skip = d.model(p, e)
		case *publish.Event:
			known, skip = d.publish(p, e)
		case *container.Event:
			known, skip = d.container(p, e)
		case *replica.Event:
			known, skip = d.replica(p, e)
		case *layout.Event:
			known, skip = d.layout(p, e)
		}
		if m.tooLarge && skip == "" {
			skip = oversize
		}
		if ours {
			s.forget(t.Changes())
		}
		t.Commit()
	}
	if !known {
		skip = fold.Unknown
	}
	if skip != "" {
		s.Skipped = s.Skipped.Count(skip)
	}
	if changes := t.Changes(); len(changes) > 0 {
		s.effects.Changes = changes
	}
}

// znode folds what clients and their sessions do; false: a body it does not know.
func (s *State) znode(bzid string, e *znode.Event) bool {
	switch b := e.GetBody().(type) {
	case *znode.Event_Proposed:
		s.effects.Outcome = s.nodes.Propose(s.cache.proposal(b.Proposed))
		s.cache.ended()
	case *znode.Event_SessionOpened:
		o := b.SessionOpened
		s.effects.Outcome = s.nodes.OpenSession(o.GetSession(), tree.Session{BZID: bzid, TimeoutMS: o.GetTimeoutMs(), PasswordHash: slices.Clone(o.GetPasswordHash())})
	case *znode.Event_Imported:
		s.effects.Outcome = s.imported(b.Imported)
	case *znode.Event_SessionClosed:
		s.effects.Outcome = s.nodes.CloseSession(b.SessionClosed.GetSession())
		if s.effects.Outcome.Code == wire.OK {
			s.effects.Closed = b.SessionClosed.GetSession()
		}
	default:
		return false
	}
	return true
}

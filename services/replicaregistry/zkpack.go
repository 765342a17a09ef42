package replicaregistry

import (
	znodepb "github.com/monolith-go/monolith/events/znode"
)

// packRounds bounds how often a batch is gone through for packs; what is still left then,
// writes to very few nodes, is stored event by event.
const packRounds = 8

// packs puts proposals that came at once into events that they share, and with it the
// zxid. In one pack nobody writes to a node that another one writes to, so that a
// node's states can be told apart by their zxids, as ZooKeeper's can. What would do so
// goes into a later pack, and whatever its session has proposed behind it follows: a
// session's order is kept, and between sessions there is none yet. What writes to nodes
// that it does not name, the end of a session, stands alone.
func packs(batch []*proposal) (out [][]*proposal) {
	if len(batch) < packFrom {
		return alone(nil, batch)
	}
	taken, held := map[string]struct{}{}, map[int64]struct{}{}
	for round := 0; len(batch) > 0; round++ {
		if round == packRounds {
			return alone(out, batch)
		}
		clear(taken)
		clear(held)
		var in, later []*proposal
		size := 0
		for _, p := range batch {
			session, writes, names := subjectOf(p.event)
			_, waits := held[session]
			if waits || !names || size+p.size > packBytes && len(in) > 0 || meets(taken, writes) {
				if !names && len(in) == 0 && len(later) == 0 {
					in = append(in, p) // it is its session's first: it goes now, by itself
					size = packBytes
					continue
				}
				later = append(later, p)
				held[session] = struct{}{}
				continue
			}
			for _, op := range writes {
				taken[op.Path()] = struct{}{}
			}
			in, size = append(in, p), size+p.size
		}
		out, batch = append(out, in), later
	}
	return out
}

func alone(out [][]*proposal, batch []*proposal) [][]*proposal {
	for i := range batch {
		out = append(out, batch[i:i+1])
	}
	return out
}

// subjectOf is whose event it is and what it writes to; names is false when it does not
// say.
func subjectOf(e *znodepb.Event) (session int64, writes []*znodepb.Op, names bool) {
	switch b := e.GetBody().(type) {
	case *znodepb.Event_SessionOpened:
		return b.SessionOpened.GetSession(), nil, true
	case *znodepb.Event_SessionClosed:
		return b.SessionClosed.GetSession(), nil, false
	case *znodepb.Event_Proposed:
		return b.Proposed.GetSession(), b.Proposed.GetOps(), true
	}
	return 0, nil, false
}

func meets(taken map[string]struct{}, writes []*znodepb.Op) bool {
	for _, op := range writes {
		if _, there := taken[op.Path()]; there && !sequential(op) {
			return true
		}
	}
	return false
}

// sequential says whether op makes a new node whatever its path.
func sequential(op *znodepb.Op) bool {
	switch op.GetCreate().GetMode() {
	case znodepb.Mode_PERSISTENT_SEQUENTIAL, znodepb.Mode_EPHEMERAL_SEQUENTIAL, znodepb.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL:
		return true
	}
	return false
}

// pack is the event that stands for the proposals: the only one's own, or all in one.
func pack(batch []*proposal) *znodepb.Event {
	if len(batch) == 1 {
		return batch[0].event
	}
	in := make([]*znodepb.Event, len(batch))
	for i, p := range batch {
		in[i] = p.event
	}
	return &znodepb.Event{Body: &znodepb.Event_Pack{Pack: &znodepb.Pack{Events: in}}}
}

// Package znode holds the facts of the ZooKeeper tree that no other context owns: writes
// of clients, and their sessions. The replica-registry owns them. A write is a proposal:
// whether it happens is decided by the fold.
package znode

import (
	"unicode/utf8"

	"github.com/monolith-go/monolith/events"
)

// Reasons for which a session ends.
const (
	Closed  = "closed"
	Expired = "expired"
)

// Bounds. Of a path and of an access list the fold makes more than the event holds: nodes
// for the missing parents of an import, and an entry for each identity behind "auth".
// Data, and the paths of proposals, are bounded by the event's own size.
const (
	MaxOps       = 1 << 15 // of one multi: one that fits into an event of the log has hardly more, so that its size is the limit
	MaxPack      = 10_000  // events of a pack
	MaxPath      = 8 << 10
	MaxACL       = 1_000          // entries of an access list
	MaxAuth      = 1_000          // identities of one client
	MaxTimeoutMs = 24 * 3_600_000 // of a session
)

// Validate reports the rules that e breaks, as an [events.ErrInvalid]. What ZooKeeper
// answers with a code, bad paths for example, is no broken rule: the fold answers it.
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Check(aggregate == Aggregate, "the aggregate is %q, it must be %q", aggregate, Aggregate)
	if b, ok := e.GetBody().(*Event_Pack); ok {
		in := b.Pack.GetEvents()
		r.Check(len(in) > 0 && len(in) <= MaxPack, "a pack of %d events, 1 to %d are allowed", len(in), MaxPack)
		for i, e := range in {
			r.Check(e.GetBody() != nil && e.GetPack() == nil, "event %d of the pack is none that it may hold", i)
			e.validate(&r)
		}
		return r.Err()
	}
	e.validate(&r)
	return r.Err()
}

func (e *Event) validate(r *events.Rules) {
	switch b := e.GetBody().(type) {
	case *Event_Proposed:
		p := b.Proposed
		r.Check(len(p.GetOps()) == 1 || p.GetMulti(), "%d operations that are no multi", len(p.GetOps()))
		r.Check(len(p.GetOps()) <= MaxOps, "%d operations in one multi, at most %d are allowed", len(p.GetOps()), MaxOps)
		r.Check(len(p.GetAuth()) <= MaxAuth, "%d identities of one client, at most %d are allowed", len(p.GetAuth()), MaxAuth)
		for i, op := range p.GetOps() {
			r.Check(op.GetOp() != nil, "operation %d is none this build knows", i)
			r.Check(utf8.ValidString(op.Path()), "the path of operation %d is not UTF-8", i)
		}
	case *Event_Imported:
		m := b.Imported
		r.Check(m.GetKind() != Imported_UNKNOWN && Imported_Kind_name[int32(m.GetKind())] != "", "an import of kind %s, it must be WRITTEN, DELETED or ACL_SET", m.GetKind())
		r.Check(m.GetKind() != Imported_ACL_SET || len(m.GetAcl()) > 0, "an import of an empty access list")
		r.Check(m.GetAversion() >= 0, "an access list of version %d", m.GetAversion())
		r.Check(len(m.GetAcl()) <= MaxACL, "an access list of %d entries, at most %d are allowed", len(m.GetAcl()), MaxACL)
		r.Text("the path of an import", m.GetPath(), MaxPath)
		r.Check(m.GetKind() != Imported_WRITTEN || m.GetCzxid() > 0 && m.GetMzxid() >= m.GetCzxid(), "an import written at %d and created at %d", m.GetMzxid(), m.GetCzxid())
	case *Event_SessionOpened:
		r.Check(b.SessionOpened.GetSession() != 0, "a session needs its id")
		r.Check(b.SessionOpened.GetTimeoutMs() > 0 && b.SessionOpened.GetTimeoutMs() <= MaxTimeoutMs, "a time-out of %d ms, 1 to %d are allowed", b.SessionOpened.GetTimeoutMs(), MaxTimeoutMs)
		r.Check(len(b.SessionOpened.GetPasswordHash()) == 32, "a password hash of %d bytes, SHA-256 has 32", len(b.SessionOpened.GetPasswordHash()))
	case *Event_SessionClosed:
		r.Check(b.SessionClosed.GetSession() != 0, "a session needs its id")
		reason := b.SessionClosed.GetReason()
		r.Check(reason == Closed || reason == Expired, "reason %q is none of %s, %s", reason, Closed, Expired)
	}
}

// Path is what the operation is about.
func (x *Op) Path() string {
	switch o := x.GetOp().(type) {
	case *Op_Create:
		return o.Create.GetPath()
	case *Op_Delete:
		return o.Delete.GetPath()
	case *Op_SetData:
		return o.SetData.GetPath()
	case *Op_SetAcl:
		return o.SetAcl.GetPath()
	case *Op_Check:
		return o.Check.GetPath()
	case *Op_DeleteContainer:
		return o.DeleteContainer.GetPath()
	}
	return ""
}

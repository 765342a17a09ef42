package view

import (
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// The log's bounds and the tree's are the same.
const (
	_ = uint(tree.MaxPath - znode.MaxPath)
	_ = uint(znode.MaxPath - tree.MaxPath)
	_ = uint(tree.MaxACL - znode.MaxACL)
	_ = uint(znode.MaxACL - tree.MaxACL)
)

// maxAsked bounds what is kept for the next proposal.
const maxAsked = 1 << 10

// asked is the proposal that is being folded. It is written over by the next one, so that
// a fold of one operation allocates nothing.
type asked struct {
	tree.Proposal
	acl []wire.ACL // of all of its operations
}

// proposal is what an event asks of the tree. It shares the event's bytes, and is the
// caller's until ended.
func (m *cache) proposal(p *znode.Proposed) *tree.Proposal {
	a := &m.asked
	a.Session, a.Multi = p.GetSession(), p.GetMulti()
	for _, id := range p.GetAuth() {
		a.Auth = append(a.Auth, tree.Identity{Scheme: id.GetScheme(), ID: id.GetId()})
	}
	for _, op := range p.GetOps() {
		a.Ops = append(a.Ops, a.op(op))
	}
	return &a.Proposal
}

// ended lets go of the event.
func (m *cache) ended() {
	a := &m.asked
	if cap(a.Ops) > maxAsked || cap(a.Auth) > maxAsked || cap(a.acl) > maxAsked {
		*a = asked{}
		return
	}
	clear(a.Ops)
	clear(a.Auth)
	clear(a.acl)
	a.Ops, a.Auth, a.acl = a.Ops[:0], a.Auth[:0], a.acl[:0]
}

func (a *asked) op(op *znode.Op) tree.Op {
	switch o := op.GetOp().(type) {
	case *znode.Op_Create:
		c := o.Create
		return tree.Op{Kind: tree.OpCreate, Path: c.GetPath(), Data: c.GetData(), ACL: a.list(c.GetAcl()), Mode: tree.Mode(c.GetMode()), TTL: c.GetTtlMs()}
	case *znode.Op_Delete:
		return tree.Op{Kind: tree.OpDelete, Path: o.Delete.GetPath(), Version: o.Delete.GetVersion()}
	case *znode.Op_SetData:
		return tree.Op{Kind: tree.OpSetData, Path: o.SetData.GetPath(), Data: o.SetData.GetData(), Version: o.SetData.GetVersion()}
	case *znode.Op_SetAcl:
		return tree.Op{Kind: tree.OpSetACL, Path: o.SetAcl.GetPath(), ACL: a.list(o.SetAcl.GetAcl()), Version: o.SetAcl.GetVersion()}
	case *znode.Op_Check:
		return tree.Op{Kind: tree.OpCheck, Path: o.Check.GetPath(), Version: o.Check.GetVersion()}
	case *znode.Op_DeleteContainer:
		return tree.Op{Kind: tree.OpDeleteContainer, Path: o.DeleteContainer.GetPath()}
	}
	return tree.Op{}
}

func (a *asked) list(acl []*znode.ACL) []wire.ACL {
	from := len(a.acl)
	a.acl = appendACL(a.acl, acl)
	return a.acl[from:len(a.acl):len(a.acl)]
}

func appendACL(to []wire.ACL, acl []*znode.ACL) []wire.ACL {
	for _, e := range acl {
		to = append(to, wire.ACL{Perms: e.GetPerms(), Scheme: e.GetScheme(), ID: e.GetId()})
	}
	return to
}

// KindOf is which operation op is.
func KindOf(op *znode.Op) tree.OpKind {
	switch op.GetOp().(type) {
	case *znode.Op_Create:
		return tree.OpCreate
	case *znode.Op_Delete:
		return tree.OpDelete
	case *znode.Op_SetData:
		return tree.OpSetData
	case *znode.Op_SetAcl:
		return tree.OpSetACL
	case *znode.Op_Check:
		return tree.OpCheck
	}
	return tree.OpDeleteContainer
}

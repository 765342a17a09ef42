package view

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"

	"github.com/monolith-go/monolith/events/znode"
)

// propose decides a client's write as Apache ZooKeeper's request processor does: the same
// checks in the same order, so the same code when several things are wrong. What is not
// ZooKeeper's: a node that shows a fact of a service, such as a live replica, goes with
// that fact, and no client removes or changes it.
func (t *tree) propose(p *znode.Proposed) *Outcome {
	o := t.outcome(p)
	for i, op := range p.GetOps() {
		r := &o.Results[i]
		r.Op = KindOf(op)
		if o.Code != wire.OK {
			r.Code = wire.RuntimeInconsistency
			continue
		}
		if r.Code = t.apply(p, op, r); r.Code != wire.OK {
			o.Code = r.Code
		}
	}
	if o.Code == wire.OK {
		t.commit()
		return o
	}
	t.rollback()
	for i := range o.Results {
		o.Results[i].Path, o.Results[i].Stat = "", wire.Stat{}
	}
	return o
}

// answer is the outcome of one operation, which almost all are of.
type answer struct {
	Outcome
	result [1]Result
}

// outcome is a fresh one: whoever is told of it may keep it, and with it some neighbours.
func (t *tree) outcome(p *znode.Proposed) *Outcome {
	n := len(p.GetOps())
	if n > 1 {
		return &Outcome{Multi: p.GetMulti(), Results: make([]Result, n)}
	}
	if len(t.answers) == 0 {
		t.answers = make([]answer, 32)
	}
	a := &t.answers[0]
	t.answers = t.answers[1:]
	a.Multi, a.Results = p.GetMulti(), a.result[:n:n]
	return &a.Outcome
}

// KindOf is which operation op is.
func KindOf(op *znode.Op) OpKind {
	switch op.GetOp().(type) {
	case *znode.Op_Create:
		return OpCreate
	case *znode.Op_Delete:
		return OpDelete
	case *znode.Op_SetData:
		return OpSetData
	case *znode.Op_SetAcl:
		return OpSetACL
	case *znode.Op_Check:
		return OpCheck
	}
	return OpDeleteContainer
}

func (t *tree) apply(p *znode.Proposed, op *znode.Op, r *Result) wire.Code {
	switch o := op.GetOp().(type) {
	case *znode.Op_Create:
		return t.applyCreate(p, o.Create, r)
	case *znode.Op_DeleteContainer:
		return t.applyDeleteContainer(o.DeleteContainer)
	}
	if !t.open(p.GetSession()) {
		return wire.SessionExpired
	}
	switch o := op.GetOp().(type) {
	case *znode.Op_Delete:
		return t.applyDelete(p, o.Delete)
	case *znode.Op_SetData:
		return t.applySetData(p, o.SetData, r)
	case *znode.Op_SetAcl:
		return t.applySetACL(p, o.SetAcl, r)
	case *znode.Op_Check:
		return t.applyCheck(p, o.Check)
	}
	return wire.Unimplemented
}

// open says whether the session may write; 0 is the registry itself.
func (t *tree) open(session int64) bool {
	if session == 0 {
		return true
	}
	_, ok := t.sessions[session]
	return ok
}

func (t *tree) may(id uint32, perm int32, p *znode.Proposed) bool {
	return allowed(t.acls.lists[t.aclRef(id).list].acl, perm, p.GetAuth())
}

func (t *tree) applyCreate(p *znode.Proposed, c *znode.Create, r *Result) wire.Code {
	mode := c.GetMode()
	if _, ok := znode.Mode_name[int32(mode)]; !ok {
		return wire.BadArguments
	}
	ttl := mode == znode.Mode_PERSISTENT_WITH_TTL || mode == znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL
	if ttl && (c.GetTtlMs() <= 0 || c.GetTtlMs() > maxTTL) || !ttl && c.GetTtlMs() > 0 {
		return wire.BadArguments
	}
	ephemeral := mode == znode.Mode_EPHEMERAL || mode == znode.Mode_EPHEMERAL_SEQUENTIAL
	if !t.open(p.GetSession()) || (ephemeral && p.GetSession() == 0) {
		return wire.SessionExpired
	}
	parent, _, ok := splitPath(c.GetPath())
	if !ok {
		return wire.BadArguments
	}
	list, ok := fix(c.GetAcl(), p.GetAuth())
	if !ok {
		return wire.InvalidACL
	}
	up := t.find(parent)
	if up == 0 {
		return wire.NoNode
	}
	if !t.may(up, wire.PermCreate, p) {
		return wire.NoAuth
	}
	path := c.GetPath()
	switch mode {
	case znode.Mode_PERSISTENT_SEQUENTIAL, znode.Mode_EPHEMERAL_SEQUENTIAL, znode.Mode_PERSISTENT_SEQUENTIAL_WITH_TTL:
		path = fmt.Sprintf("%s%010d", path, t.dirOf(up).creates)
	}
	if !validPath(path) {
		return wire.BadArguments
	}
	_, name, _ := splitPath(path)
	if path == "/" || t.child(up, name) != 0 {
		return wire.NodeExists
	}
	if isEphemeral(t.owner(up)) {
		return wire.NoChildrenForEphemerals
	}
	owner := int64(0)
	switch {
	case ephemeral:
		owner = p.GetSession()
	case ttl:
		owner = ttlOwner | c.GetTtlMs()
	case mode == znode.Mode_CONTAINER:
		owner = containerOwner
	}
	id := t.create(up, path, name, c.GetData(), owner, t.acls.intern(list))
	r.Path, r.Stat = path, t.stat(id)
	t.quotaCreated(id, path)
	return wire.OK
}

func (t *tree) applyDelete(p *znode.Proposed, d *znode.Delete) wire.Code {
	parent, name, ok := splitPath(d.GetPath())
	if !ok || special(d.GetPath()) {
		return wire.BadArguments
	}
	up := t.find(parent)
	if up == 0 {
		return wire.NoNode
	}
	if !t.may(up, wire.PermDelete, p) {
		return wire.NoAuth
	}
	id := t.child(up, name)
	if id == 0 {
		return wire.NoNode
	}
	if IsService(t.owner(id)) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, d.GetVersion()) {
		return wire.BadVersion
	}
	if t.dirOf(id).kids > 0 {
		return wire.NotEmpty
	}
	t.remove(id, d.GetPath())
	return wire.OK
}

// applyDeleteContainer is stricter than ZooKeeper, whose leader asks before it proposes:
// here the state decides, when the event has its place in the log.
func (t *tree) applyDeleteContainer(d *znode.DeleteContainer) wire.Code {
	if _, _, ok := splitPath(d.GetPath()); !ok || special(d.GetPath()) {
		return wire.BadArguments
	}
	id := t.find(d.GetPath())
	if id == 0 {
		return wire.NoNode
	}
	if t.dirOf(id).kids > 0 {
		return wire.NotEmpty
	}
	if !t.over(id, t.ms) {
		return wire.BadVersion
	}
	t.remove(id, d.GetPath())
	return wire.OK
}

// over says whether a childless node's time has come: a container that had children, or
// a time to live that has passed since the last write.
func (t *tree) over(id uint32, ms int64) bool {
	switch owner := t.owner(id); {
	case owner == containerOwner:
		return t.dirOf(id).creates > 0
	case owner&ttlOwner == ttlOwner:
		return ms-t.nodes.at(id).mtime > owner&maxTTL
	}
	return false
}

func (t *tree) applySetData(p *znode.Proposed, s *znode.SetData, r *Result) wire.Code {
	if !validPath(s.GetPath()) {
		return wire.BadArguments
	}
	id := t.find(s.GetPath())
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermWrite, p) || IsService(t.owner(id)) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, s.GetVersion()) {
		return wire.BadVersion
	}
	t.set(id, s.GetPath(), s.GetData())
	r.Stat = t.stat(id)
	return wire.OK
}

func (t *tree) applySetACL(p *znode.Proposed, s *znode.SetACL, r *Result) wire.Code {
	if !validPath(s.GetPath()) {
		return wire.BadArguments
	}
	list, ok := fix(s.GetAcl(), p.GetAuth())
	if !ok {
		return wire.InvalidACL
	}
	id := t.find(s.GetPath())
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermAdmin, p) {
		return wire.NoAuth
	}
	if !matches(t.aclRef(id).version, s.GetVersion()) {
		return wire.BadVersion
	}
	t.setACL(id, t.acls.intern(list))
	r.Stat = t.stat(id)
	return wire.OK
}

func (t *tree) applyCheck(p *znode.Proposed, c *znode.Check) wire.Code {
	if !validPath(c.GetPath()) {
		return wire.BadArguments
	}
	id := t.find(c.GetPath())
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermRead, p) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, c.GetVersion()) {
		return wire.BadVersion
	}
	return wire.OK
}

// matches compares a version with the one that a client expects, -1: any.
func matches(have, want int32) bool { return want == -1 || want == have }

func (t *tree) openSession(bzid string, e *znode.SessionOpened) *Outcome {
	if t.open(e.GetSession()) {
		return &Outcome{Code: wire.NodeExists}
	}
	t.sessions[e.GetSession()] = Session{BZID: bzid, TimeoutMS: e.GetTimeoutMs(), PasswordHash: slices.Clone(e.GetPasswordHash())}
	return &Outcome{}
}

// closeSession removes the session and, in the order of their paths, its ephemerals.
func (t *tree) closeSession(session int64) *Outcome {
	if session == 0 || !t.open(session) {
		return &Outcome{Code: wire.SessionExpired}
	}
	delete(t.sessions, session)
	for _, path := range t.ephemeralsOf(session) {
		id := t.find(path)
		if t.dirOf(id).kids > 0 { // a service's fact put a node below it
			t.disown(id)
			continue
		}
		t.remove(id, path)
	}
	t.commit()
	return &Outcome{}
}

func (t *tree) ephemeralsOf(owner int64) []string {
	paths := make([]string, 0, len(t.ephemerals[owner]))
	for id := range t.ephemerals[owner] {
		paths = append(paths, t.path(id))
	}
	slices.Sort(paths)
	return paths
}

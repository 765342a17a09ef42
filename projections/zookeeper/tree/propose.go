package tree

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Proposal is what a client asks for: operations of which all are done, or none.
type Proposal struct {
	Session int64 // 0: the registry itself
	Auth    []Identity
	Multi   bool
	Ops     []Op
}

// Op is one operation. What its kind has no use for is zero.
type Op struct {
	Kind    OpKind
	Mode    Mode  // of a create
	Version int32 // that the client expects, -1: any
	Path    string
	Data    []byte // nil: none at all, which is not empty
	ACL     []wire.ACL
	TTL     int64 // ms, of a create
}

// Identity is who a client has shown to be.
type Identity struct{ Scheme, ID string }

// GetScheme is Scheme.
func (i Identity) GetScheme() string { return i.Scheme }

// GetId is ID.
func (i Identity) GetId() string { return i.ID }

// Mode is how a node is created; the numbers are ZooKeeper's.
type Mode int32

// The modes.
const (
	Persistent Mode = iota
	Ephemeral
	PersistentSequential
	EphemeralSequential
	Container
	PersistentWithTTL
	PersistentSequentialWithTTL
)

// Propose decides a client's write as Apache ZooKeeper's request processor does: the same
// checks in the same order, so the same code when several things are wrong. What is not
// ZooKeeper's: a node that shows a fact of a service, such as a live replica, goes with
// that fact, and no client removes or changes it.
func (t *Tree) Propose(p *Proposal) *Outcome {
	o := t.outcome(p)
	for i := range p.Ops {
		op, r := &p.Ops[i], &o.Results[i]
		r.Op = op.Kind
		if o.Code != wire.OK {
			r.Code = wire.RuntimeInconsistency
			continue
		}
		if r.Code = t.apply(p, op, r); r.Code != wire.OK {
			o.Code = r.Code
		}
	}
	if o.Code == wire.OK {
		t.Commit()
		return o
	}
	t.Rollback()
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
func (t *Tree) outcome(p *Proposal) *Outcome {
	n := len(p.Ops)
	if n > 1 {
		return &Outcome{Multi: p.Multi, Results: make([]Result, n)}
	}
	if len(t.answers) == 0 {
		t.answers = make([]answer, 32)
	}
	a := &t.answers[0]
	t.answers = t.answers[1:]
	a.Multi, a.Results = p.Multi, a.result[:n:n]
	return &a.Outcome
}

// apply does one operation.
func (t *Tree) apply(p *Proposal, op *Op, r *Result) wire.Code {
	switch op.Kind {
	case OpCreate:
		return t.applyCreate(p, op, r)
	case OpDeleteContainer:
		return t.applyDeleteContainer(op)
	}
	if !t.open(p.Session) {
		return wire.SessionExpired
	}
	switch op.Kind {
	case OpDelete:
		return t.applyDelete(p, op)
	case OpSetData:
		return t.applySetData(p, op, r)
	case OpSetACL:
		return t.applySetACL(p, op, r)
	case OpCheck:
		return t.applyCheck(p, op)
	}
	return wire.Unimplemented
}

// open says whether the session may write; 0 is the registry itself.
func (t *Tree) open(session int64) bool {
	if session == 0 {
		return true
	}
	_, ok := t.sessions[session]
	return ok
}

func (t *Tree) may(id uint32, perm int32, p *Proposal) bool {
	return Allowed(t.acls.lists[t.aclRef(id).list].acl, perm, p.Auth)
}

func (t *Tree) applyCreate(p *Proposal, c *Op, r *Result) wire.Code {
	mode := c.Mode
	if mode < Persistent || mode > PersistentSequentialWithTTL {
		return wire.BadArguments
	}
	ttl := mode == PersistentWithTTL || mode == PersistentSequentialWithTTL
	if ttl && (c.TTL <= 0 || c.TTL > maxTTL) || !ttl && c.TTL > 0 {
		return wire.BadArguments
	}
	ephemeral := mode == Ephemeral || mode == EphemeralSequential
	if !t.open(p.Session) || (ephemeral && p.Session == 0) {
		return wire.SessionExpired
	}
	parent, _, ok := SplitPath(c.Path)
	if !ok {
		return wire.BadArguments
	}
	list, ok := FixACL(c.ACL, p.Auth)
	if !ok {
		return wire.InvalidACL
	}
	up := t.Find(parent)
	if up == 0 {
		return wire.NoNode
	}
	if !t.may(up, wire.PermCreate, p) {
		return wire.NoAuth
	}
	path := c.Path
	switch mode {
	case PersistentSequential, EphemeralSequential, PersistentSequentialWithTTL:
		path = fmt.Sprintf("%s%010d", path, t.dirOf(up).creates)
	}
	if !ValidPath(path) {
		return wire.BadArguments
	}
	_, name, _ := SplitPath(path)
	if path == "/" || t.child(up, name) != 0 {
		return wire.NodeExists
	}
	if IsEphemeral(t.Owner(up)) {
		return wire.NoChildrenForEphemerals
	}
	owner := int64(0)
	switch {
	case ephemeral:
		owner = p.Session
	case ttl:
		owner = ttlOwner | c.TTL
	case mode == Container:
		owner = containerOwner
	}
	id := t.create(up, path, name, c.Data, owner, t.acls.intern(list))
	r.Path, r.Stat = path, t.StatOf(id)
	t.quotaCreated(id, path)
	return wire.OK
}

func (t *Tree) applyDelete(p *Proposal, d *Op) wire.Code {
	parent, name, ok := SplitPath(d.Path)
	if !ok || Special(d.Path) {
		return wire.BadArguments
	}
	up := t.Find(parent)
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
	if IsService(t.Owner(id)) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, d.Version) {
		return wire.BadVersion
	}
	if t.dirOf(id).kids > 0 {
		return wire.NotEmpty
	}
	t.Remove(id, d.Path)
	return wire.OK
}

// applyDeleteContainer is stricter than ZooKeeper, whose leader asks before it proposes:
// here the state decides, when the event has its place in the log.
func (t *Tree) applyDeleteContainer(d *Op) wire.Code {
	if _, _, ok := SplitPath(d.Path); !ok || Special(d.Path) {
		return wire.BadArguments
	}
	id := t.Find(d.Path)
	if id == 0 {
		return wire.NoNode
	}
	if t.dirOf(id).kids > 0 {
		return wire.NotEmpty
	}
	if !t.over(id, t.ms) {
		return wire.BadVersion
	}
	t.Remove(id, d.Path)
	return wire.OK
}

// over says whether a childless node's time has come: a container that had children, or
// a time to live that has passed since the last write.
func (t *Tree) over(id uint32, ms int64) bool {
	switch owner := t.Owner(id); {
	case owner == containerOwner:
		return t.dirOf(id).creates > 0
	case owner&ttlOwner == ttlOwner:
		return ms-t.nodes.at(id).mtime > owner&maxTTL
	}
	return false
}

func (t *Tree) applySetData(p *Proposal, s *Op, r *Result) wire.Code {
	if !ValidPath(s.Path) {
		return wire.BadArguments
	}
	id := t.Find(s.Path)
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermWrite, p) || IsService(t.Owner(id)) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, s.Version) {
		return wire.BadVersion
	}
	t.Set(id, s.Path, s.Data)
	r.Stat = t.StatOf(id)
	return wire.OK
}

func (t *Tree) applySetACL(p *Proposal, s *Op, r *Result) wire.Code {
	if !ValidPath(s.Path) {
		return wire.BadArguments
	}
	list, ok := FixACL(s.ACL, p.Auth)
	if !ok {
		return wire.InvalidACL
	}
	id := t.Find(s.Path)
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermAdmin, p) {
		return wire.NoAuth
	}
	if !matches(t.aclRef(id).version, s.Version) {
		return wire.BadVersion
	}
	t.setACL(id, t.acls.intern(list))
	r.Stat = t.StatOf(id)
	return wire.OK
}

func (t *Tree) applyCheck(p *Proposal, c *Op) wire.Code {
	if !ValidPath(c.Path) {
		return wire.BadArguments
	}
	id := t.Find(c.Path)
	if id == 0 {
		return wire.NoNode
	}
	if !t.may(id, wire.PermRead, p) {
		return wire.NoAuth
	}
	if !matches(t.nodes.at(id).version, c.Version) {
		return wire.BadVersion
	}
	return wire.OK
}

// matches compares a version with the one that a client expects, -1: any.
func matches(have, want int32) bool { return want == -1 || want == have }

// OpenSession makes id a session; a number that one has is refused.
func (t *Tree) OpenSession(id int64, s Session) *Outcome {
	if t.open(id) {
		return &Outcome{Code: wire.NodeExists}
	}
	t.sessions[id] = s
	return &Outcome{}
}

// CloseSession removes the session and, in the order of their paths, its ephemerals.
func (t *Tree) CloseSession(session int64) *Outcome {
	if session == 0 || !t.open(session) {
		return &Outcome{Code: wire.SessionExpired}
	}
	delete(t.sessions, session)
	for _, path := range t.ephemeralsOf(session) {
		id := t.Find(path)
		if t.dirOf(id).kids > 0 { // a service's fact put a node below it
			t.Disown(id)
			continue
		}
		t.Remove(id, path)
	}
	t.Commit()
	return &Outcome{}
}

func (t *Tree) ephemeralsOf(owner int64) []string {
	paths := make([]string, 0, len(t.ephemerals[owner]))
	for id := range t.ephemerals[owner] {
		paths = append(paths, t.path(id))
	}
	slices.Sort(paths)
	return paths
}

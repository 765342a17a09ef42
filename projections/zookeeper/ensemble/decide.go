package ensemble

import (
	"bytes"
	"slices"
	"sort"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// localNode is a node of our tree. Sequences are the log's.
type localNode struct {
	data             []byte
	acl              []wire.ACL
	aversion         int32
	held             bool   // ephemeral: the mirror's session holds it over there
	foreign          int64  // session over there that holds it; 0: none does
	created, written uint64 // sequences
	external         bool   // it was made or written in the ensemble
	asImported       bool   // and nobody here has written it since
	imported         int64  // mzxid of that write
	children         int32
}

// remoteNode is a node of the ensemble; zxids are the ensemble's.
type remoteNode struct {
	data     []byte
	owner    int64 // session that holds it; 0: none
	czxid    int64
	mzxid    int64
	version  int32
	children int32
	aversion int32
	acl      []wire.ACL // nil: it has not been read
	opaque   bool       // it may not be read with the mirror's identities
	large    bool       // larger than an event may be: never imported, and left alone where it is nobody's but theirs
}

// action is what is to be done about one path.
type action int

const (
	agree   action = iota
	create         // over there
	set            // over there
	replace        // over there: delete and create in one multi
	remove         // over there
	importWrite
	importDelete
	setACL // over there
	importACL
)

func (v action) String() string {
	return [...]string{"agree", "create", "set", "replace", "remove", "importWrite", "importDelete", "setACL", "importACL"}[v]
}

// cursor is how far both sides are known to have been the same. It lies in the ensemble,
// and every write of the mirror takes it along, so that it is never ahead of them.
type cursor struct {
	Writer string     `json:"writer"`
	Seq    uint64     `json:"seq"`           // our tree up to here has been written over there; 0: never all of it
	At     uint64     `json:"at,omitempty"`  // an event of the log, not before Seq, and its
	ID     string     `json:"id,omitempty"`  // id: which log it is
	Zxid   int64      `json:"zxid"`          // their tree up to here has been looked at
	Own    [][2]int64 `json:"own,omitempty"` // zxids beyond it that are the mirror's own: first and last of each run, sorted
}

// syncState is what decides who changed a node.
type syncState struct {
	cursor
	session int64             // the mirror's over there
	bridge  bool              // foreign writes are to be imported
	handled map[string]int64  // by path: mzxid beyond mark.Zxid that has been dealt with
	there   map[string]uint64 // by path: what was written here, beyond Seq, and was seen over there
	refused map[string]bool   // deletions that were not to be had here
	kept    map[string]int32  // by path: version of the access list there that was not to be had here
}

// foreignWrite says whether somebody else wrote the node and nobody here has heard of it.
func (p *syncState) foreignWrite(path string, o *localNode, t *remoteNode) bool {
	switch {
	case !p.bridge, t.large, t.mzxid <= p.Zxid, p.handled[path] == t.mzxid, o != nil && o.imported == t.mzxid:
		return false
	}
	return !p.isOwn(t.mzxid)
}

// isOwn says whether the mirror wrote at the zxid, which lies beyond the mark.
func (m *cursor) isOwn(zxid int64) bool {
	i := sort.Search(len(m.Own), func(i int) bool { return m.Own[i][1] >= zxid })
	return i < len(m.Own) && m.Own[i][0] <= zxid
}

// saw notes that the ensemble has the node as it was written here at a sequence. Where one path cannot be written Seq
// stays behind, and does not tell it of the others.
func (p *syncState) saw(path string, written uint64) {
	if written > p.Seq {
		p.there[path] = written
	}
}

// own notes a zxid of the mirror's, greater than those noted before.
func (m *cursor) own(zxid int64) {
	switch n := len(m.Own); {
	case zxid <= m.Zxid || m.isOwn(zxid):
	case n > 0 && m.Own[n-1][1] == zxid-1:
		m.Own[n-1][1] = zxid
	default:
		m.Own = append(m.Own, [2]int64{zxid, zxid})
	}
}

// advance moves the mark over there to zxid.
func (m *cursor) advance(zxid int64) {
	m.Zxid = zxid
	m.Own = slices.DeleteFunc(m.Own, func(run [2]int64) bool { return run[1] <= zxid })
}

// decide compares one path. A foreign write is imported at most once, whatever comes of
// it, and one of ours is never imported: so the two directions cannot feed each other.
// drift says that the ensemble has lost or changed what had been written there.
func decide(path string, o *localNode, t *remoteNode, p *syncState) (v action, drift bool) {
	switch {
	case o == nil && t == nil, t != nil && t.opaque:
		return agree, false
	case o == nil:
		return p.unknown(path, t)
	case t == nil:
		return p.missing(path, o)
	}
	changed := o.written > p.Seq && !o.asImported
	external := p.foreignWrite(path, o, t)
	holder := o.foreign
	if o.held {
		holder = p.session
	}
	if t.owner != holder {
		switch {
		case !o.held && external:
			return importWrite, false
		case o.foreign != 0: // whoever holds it there knows best
			if !p.bridge || p.handled[path] == t.mzxid || o.imported == t.mzxid {
				return agree, false
			}
			return importWrite, false
		case t.children == 0:
			return replace, !o.held && !changed
		}
	}
	if bytes.Equal(o.data, t.data) {
		return agree, false
	}
	if external && !o.held && (!changed || o.external) {
		return importWrite, false
	}
	return set, !changed
}

// decideACL compares the access lists of a node that both sides have, and whose data
// have been decided. The ensemble tells of no zxid at which a list was set, but counts
// how often: both sides are made to count alike, so that whoever counts further has set it
// last. A list that was set on both sides since they last counted alike is theirs. Who
// holds a node, or has no bridge, does not look at the count: ours is right.
func decideACL(path string, o *localNode, t *remoteNode, p *syncState) (v action, drift bool) {
	if o == nil || t == nil || t.opaque || t.acl == nil || masked(t.acl) {
		return agree, false
	}
	same := slices.Equal(o.acl, t.acl)
	kept, refused := p.kept[path]
	switch {
	case !p.bridge, o.held, refused && kept == t.aversion:
		if same {
			return agree, false
		}
		return setACL, t.aversion > o.aversion
	case t.aversion < o.aversion:
		return setACL, false
	case t.aversion > o.aversion, !same:
		return importACL, false
	}
	return agree, false
}

// masked says that the ensemble hides the digests of a list, as it does from those who may
// not set it.
func masked(acl []wire.ACL) bool {
	return slices.ContainsFunc(acl, func(a wire.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, ":x") })
}

// unknown is a node that only the ensemble has.
func (p *syncState) unknown(path string, t *remoteNode) (action, bool) {
	switch {
	case p.foreignWrite(path, nil, t):
		return importWrite, false
	case p.bridge && t.large:
		return agree, false
	case !p.bridge && t.owner != 0 && t.owner != p.session:
		return agree, false // somebody's who lives
	}
	return remove, !p.bridge
}

// missing is a node that only our tree has.
func (p *syncState) missing(path string, o *localNode) (action, bool) {
	switch {
	case o.foreign != 0:
		if !p.bridge {
			return agree, false
		}
		return importDelete, false
	case o.held:
		return create, p.Seq != 0 && o.created <= p.Seq
	}
	was := p.there[path] != 0 || p.Seq != 0 && (o.created <= p.Seq || o.external) // it has been there
	changed := o.written > max(p.Seq, p.there[path]) && !o.asImported
	if was && p.bridge && !changed && o.children == 0 && !p.refused[path] {
		return importDelete, false
	}
	return create, was
}

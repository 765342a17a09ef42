package znode

import (
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Arena decodes many events into memory that they share, so that a replay of writes does
// not allocate a dozen times for each. What it decodes refers to the bytes decoded, which must
// never change, and keeps some of its neighbours in memory. The zero value is ready; one
// goroutine at a time.
type Arena struct {
	nodes []node
	acls  map[string]*ACL // equal entries are one
}

// node is one event of one operation, which is what almost all are.
type node struct {
	event    Event
	body     Event_Proposed
	proposed Proposed
	op       Op
	ops      [1]*Op
	set      SetData
	isSet    Op_SetData
	create   Create
	isCreate Op_Create
	remove   Delete
	isRemove Op_Delete
}

const arenaNodes = 256

// Unmarshal is proto.Unmarshal into a new Event. Writes of one operation by a client take
// the short way; whatever is out of the ordinary is left to protobuf's own decoder, and
// the outcome is the same.
func (a *Arena) Unmarshal(b []byte) (*Event, error) {
	if len(a.nodes) == 0 {
		a.nodes = make([]node, arenaNodes)
	}
	if n := &a.nodes[0]; n.decode(a, b) {
		a.nodes = a.nodes[1:]
		return &n.event, nil
	} else {
		*n = node{}
	}
	e := new(Event)
	return e, proto.Unmarshal(b, e)
}

// field is the next field of *b, taken off it.
func field(b *[]byte) (num protowire.Number, kind protowire.Type, v uint64, data []byte, ok bool) {
	num, kind, n := protowire.ConsumeTag(*b)
	if n < 0 {
		return 0, 0, 0, nil, false
	}
	*b = (*b)[n:]
	switch kind {
	case protowire.VarintType:
		v, n = protowire.ConsumeVarint(*b)
	case protowire.Fixed64Type:
		v, n = protowire.ConsumeFixed64(*b)
	case protowire.BytesType:
		data, n = protowire.ConsumeBytes(*b)
	default:
		return 0, 0, 0, nil, false
	}
	if n < 0 {
		return 0, 0, 0, nil, false
	}
	*b = (*b)[n:]
	return num, kind, v, data, true
}

func (n *node) decode(a *Arena, b []byte) bool {
	num, kind, _, data, ok := field(&b)
	if !ok || len(b) > 0 || num != 1 || kind != protowire.BytesType {
		return false
	}
	n.body.Proposed = &n.proposed
	n.event.Body = &n.body
	seen := false
	for len(data) > 0 {
		num, kind, v, inner, ok := field(&data)
		switch {
		case !ok:
			return false
		case num == 1 && kind == protowire.Fixed64Type:
			n.proposed.Session = int64(v)
		case num == 2 && kind == protowire.BytesType && !seen:
			seen = true
			if !n.decodeOp(a, inner) {
				return false
			}
			n.ops[0] = &n.op
			n.proposed.Ops = n.ops[:]
		case num == 3 && kind == protowire.VarintType:
			n.proposed.Multi = v != 0
		case num == 4 && kind == protowire.BytesType:
			id := new(Identity)
			if proto.Unmarshal(inner, id) != nil {
				return false
			}
			n.proposed.Auth = append(n.proposed.Auth, id)
		default:
			return false
		}
	}
	return seen
}

func (n *node) decodeOp(a *Arena, b []byte) bool {
	num, kind, _, data, ok := field(&b)
	if !ok || len(b) > 0 || kind != protowire.BytesType {
		return false
	}
	switch num {
	case 1:
		n.isCreate.Create = &n.create
		n.op.Op = &n.isCreate
		return n.decodeCreate(a, data)
	case 2:
		n.isRemove.Delete = &n.remove
		n.op.Op = &n.isRemove
		return pathVersion(data, &n.remove.Path, nil, &n.remove.Version)
	case 3:
		n.isSet.SetData = &n.set
		n.op.Op = &n.isSet
		return pathVersion(data, &n.set.Path, &n.set.Data, &n.set.Version)
	}
	return false
}

// pathVersion reads a path, data where there is a place for them, and the version behind.
func pathVersion(b []byte, path *string, data *[]byte, version *int32) bool {
	last := protowire.Number(2)
	if data != nil {
		last = 3
	}
	for len(b) > 0 {
		num, kind, v, inner, ok := field(&b)
		switch {
		case !ok:
			return false
		case num == 1 && kind == protowire.BytesType && utf8.Valid(inner):
			*path = text(inner)
		case num == 2 && kind == protowire.BytesType && data != nil:
			*data = inner[:len(inner):len(inner)]
		case num == last && kind == protowire.VarintType:
			*version = int32(v)
		default:
			return false
		}
	}
	return true
}

func (n *node) decodeCreate(a *Arena, b []byte) bool {
	for len(b) > 0 {
		num, kind, v, inner, ok := field(&b)
		switch {
		case !ok:
			return false
		case num == 1 && kind == protowire.BytesType && utf8.Valid(inner):
			n.create.Path = text(inner)
		case num == 2 && kind == protowire.BytesType:
			n.create.Data = inner[:len(inner):len(inner)]
		case num == 3 && kind == protowire.BytesType:
			acl := a.acl(inner)
			if acl == nil {
				return false
			}
			n.create.Acl = append(n.create.Acl, acl)
		case num == 4 && kind == protowire.VarintType:
			n.create.Mode = Mode(v)
		case num == 5 && kind == protowire.VarintType:
			n.create.TtlMs = int64(v)
		default:
			return false
		}
	}
	return true
}

// acl decodes an entry, nil if it cannot.
func (a *Arena) acl(b []byte) *ACL {
	if acl := a.acls[string(b)]; acl != nil {
		return acl
	}
	acl := new(ACL)
	if proto.Unmarshal(b, acl) != nil {
		return nil
	}
	if a.acls == nil {
		a.acls = map[string]*ACL{}
	}
	if len(a.acls) < arenaNodes {
		a.acls[string(b)] = acl
	}
	return acl
}

// text sees bytes that never change as a string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

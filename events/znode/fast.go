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
	nodes chunks[node]
	packs chunks[pack]
	acls  map[string]*ACL      // equal entries are one
	ids   map[string]*Identity // the same
}

// node is one event of one operation, which is what almost all are.
type node struct {
	event    Event
	body     Event_Proposed
	proposed Proposed
	op       Op
	ops      [1]*Op
	auth     [1]*Identity
	isSet    Op_SetData
	set      SetData
	isCreate Op_Create
	create   Create
	acl      [1]*ACL
	isRemove Op_Delete
	remove   Delete
}

// pack is one event of several.
type pack struct {
	event  Event
	body   Event_Pack
	pack   Pack
	events []*Event // their place, whatever was in it
}

// arenaNodes are made at once; arenaKnown bounds what is remembered of access lists.
const (
	arenaNodes = 256
	arenaKnown = 256
)

// chunks are values that are made many at a time and stay where they are.
type chunks[T any] struct {
	all  [][]T
	used int
}

func (c *chunks[T]) next(size int) *T {
	i := c.used / size
	if i == len(c.all) {
		c.all = append(c.all, make([]T, size))
	}
	c.used++
	return &c.all[i][(c.used-1)%size]
}

// Reset takes back every event decoded so far: the next ones are put into their memory.
// Nobody may hold on to one, or to a message or slice of it; its strings and data, which
// refer to the bytes decoded, may be kept.
func (a *Arena) Reset() { a.nodes.used, a.packs.used = 0, 0 }

// Unmarshal is proto.Unmarshal into a new Event. Writes of one operation by a client, and
// packs of them, take the short way; whatever is out of the ordinary is left to
// protobuf's own decoder, and the outcome is the same.
func (a *Arena) Unmarshal(b []byte) (*Event, error) {
	var body []byte
	num, kind, _, ok := field(b, &body)
	if ok == len(b) && ok > 0 && kind == protowire.BytesType {
		switch num {
		case 1:
			if e := a.proposed(body); e != nil {
				return e, nil
			}
		case 5:
			if e := a.pack(body); e != nil {
				return e, nil
			}
		}
	}
	e := new(Event)
	return e, proto.Unmarshal(b, e)
}

// field is the first field of b and how many bytes it takes, 0 when it is none that
// occurs here. The bytes of a string are put into data.
func field(b []byte, data *[]byte) (num protowire.Number, kind protowire.Type, v uint64, n int) {
	if len(b) < 2 || b[0] >= 0x80 {
		return 0, 0, 0, 0
	}
	num, kind = protowire.Number(b[0]>>3), protowire.Type(b[0]&7)
	if kind == protowire.Fixed64Type {
		v, n = protowire.ConsumeFixed64(b[1:])
		return num, kind, v, max(n+1, 0)
	}
	if v, n = uint64(b[1]), 1; v >= 0x80 {
		if v, n = protowire.ConsumeVarint(b[1:]); n < 0 {
			return 0, 0, 0, 0
		}
	}
	n++
	switch kind {
	case protowire.VarintType:
		return num, kind, v, n
	case protowire.BytesType:
		if v > uint64(len(b)-n) {
			return 0, 0, 0, 0
		}
		end := n + int(v)
		*data = b[n:end:end]
		return num, kind, 0, end
	}
	return 0, 0, 0, 0
}

// pack decodes a body of several events, nil if it cannot.
func (a *Arena) pack(b []byte) *Event {
	p := a.packs.next(arenaNodes / 16)
	p.events = p.events[:0]
	var inner []byte
	for len(b) > 0 {
		num, kind, _, n := field(b, &inner)
		if n == 0 || num != 1 || kind != protowire.BytesType {
			return nil
		}
		e, err := a.Unmarshal(inner)
		if err != nil {
			return nil
		}
		p.events = append(p.events, e)
		b = b[n:]
	}
	p.pack.Events = p.events
	p.body.Pack = &p.pack
	p.event.Body = &p.body
	return &p.event
}

// proposed decodes the body of a proposal, nil if it cannot. Of a node that was used
// before it overwrites whatever it may set.
func (a *Arena) proposed(b []byte) *Event {
	n := a.nodes.next(arenaNodes)
	if n.event.Body == nil {
		n.body.Proposed = &n.proposed
		n.event.Body = &n.body
		n.ops[0] = &n.op
		n.proposed.Ops = n.ops[:]
		n.isSet.SetData, n.isCreate.Create, n.isRemove.Delete = &n.set, &n.create, &n.remove
	}
	n.proposed.Session, n.proposed.Multi, n.proposed.Auth = 0, false, nil
	seen := false
	var inner []byte
	for len(b) > 0 {
		num, kind, v, size := field(b, &inner)
		switch {
		case size == 0:
			return nil
		case num == 1 && kind == protowire.Fixed64Type:
			n.proposed.Session = int64(v)
		case num == 2 && kind == protowire.BytesType && !seen:
			seen = true
			if !n.decodeOp(a, inner) {
				return nil
			}
		case num == 3 && kind == protowire.VarintType:
			n.proposed.Multi = v != 0
		case num == 4 && kind == protowire.BytesType:
			id := remembered(&a.ids, inner)
			if id == nil {
				return nil
			}
			if n.proposed.Auth == nil {
				n.proposed.Auth = n.auth[:0]
			}
			n.proposed.Auth = append(n.proposed.Auth, id)
		default:
			return nil
		}
		b = b[size:]
	}
	if !seen {
		return nil
	}
	return &n.event
}

func (n *node) decodeOp(a *Arena, b []byte) bool {
	var data []byte
	num, kind, _, size := field(b, &data)
	if size == 0 || size != len(b) || kind != protowire.BytesType {
		return false
	}
	switch num {
	case 1:
		n.op.Op = &n.isCreate
		return n.decodeCreate(a, data)
	case 2:
		n.op.Op = &n.isRemove
		return pathVersion(data, &n.remove.Path, nil, &n.remove.Version)
	case 3:
		n.op.Op = &n.isSet
		return pathVersion(data, &n.set.Path, &n.set.Data, &n.set.Version)
	}
	return false
}

// pathVersion reads a path, data where there is a place for them, and the version behind.
func pathVersion(b []byte, path *string, data *[]byte, version *int32) bool {
	*path, *version = "", 0
	last := protowire.Number(2)
	if data != nil {
		last, *data = 3, nil
	}
	var inner []byte
	for len(b) > 0 {
		num, kind, v, size := field(b, &inner)
		switch {
		case size == 0:
			return false
		case num == 1 && kind == protowire.BytesType && utf8.Valid(inner):
			*path = text(inner)
		case num == 2 && kind == protowire.BytesType && data != nil:
			*data = inner
		case num == last && kind == protowire.VarintType:
			*version = int32(v)
		default:
			return false
		}
		b = b[size:]
	}
	return true
}

func (n *node) decodeCreate(a *Arena, b []byte) bool {
	c := &n.create
	c.Path, c.Data, c.Acl, c.Mode, c.TtlMs = "", nil, nil, 0, 0
	var inner []byte
	for len(b) > 0 {
		num, kind, v, size := field(b, &inner)
		switch {
		case size == 0:
			return false
		case num == 1 && kind == protowire.BytesType && utf8.Valid(inner):
			c.Path = text(inner)
		case num == 2 && kind == protowire.BytesType:
			c.Data = inner
		case num == 3 && kind == protowire.BytesType:
			acl := remembered(&a.acls, inner)
			if acl == nil {
				return false
			}
			if c.Acl == nil {
				c.Acl = n.acl[:0]
			}
			c.Acl = append(c.Acl, acl)
		case num == 4 && kind == protowire.VarintType:
			c.Mode = Mode(v)
		case num == 5 && kind == protowire.VarintType:
			c.TtlMs = int64(v)
		default:
			return false
		}
		b = b[size:]
	}
	return true
}

// remembered is the message that b holds, nil if it cannot be decoded. It is nobody's
// and shared: it is never changed.
func remembered[T any, M interface {
	*T
	proto.Message
}](known *map[string]M, b []byte) M {
	if m := (*known)[string(b)]; m != nil {
		return m
	}
	m := M(new(T))
	if proto.Unmarshal(b, m) != nil {
		return nil
	}
	if *known == nil {
		*known = map[string]M{}
	}
	if len(*known) < arenaKnown {
		(*known)[string(b)] = m
	}
	return m
}

// text sees bytes that never change as a string.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

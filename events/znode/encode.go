package znode

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// AppendBinary appends e as proto.Marshal writes it. Writes of clients and packs of them
// take a short way without reflection; whatever is out of the ordinary is left to protobuf.
func (e *Event) AppendBinary(b []byte) ([]byte, error) {
	if !e.plain() {
		return proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, e)
	}
	if p, ok := e.GetBody().(*Event_Pack); ok {
		size := 0
		for _, in := range p.Pack.Events {
			size += framed(in.short())
		}
		b = grow(b, framed(size))
		b = frame(b, 5, size)
		for _, in := range p.Pack.Events {
			b = in.appendShort(frame(b, 1, in.short()))
		}
		return b, nil
	}
	return e.appendShort(grow(b, e.short())), nil
}

// Size is proto.Size of e, and quicker.
func (e *Event) Size() int {
	if _, pack := e.GetBody().(*Event_Pack); pack || !e.plain() {
		return proto.Size(e)
	}
	return e.short()
}

// plain says whether the short way knows everything about e: no other fields, no other
// operations, and no string that protobuf would refuse.
func (e *Event) plain() bool {
	if e == nil || len(e.unknownFields) > 0 {
		return false
	}
	switch body := e.GetBody().(type) {
	case *Event_Pack:
		if body.Pack == nil || len(body.Pack.unknownFields) > 0 {
			return false
		}
		for _, in := range body.Pack.Events {
			if _, nested := in.GetBody().(*Event_Pack); nested || !in.plain() {
				return false
			}
		}
		return true
	case *Event_Proposed:
		p := body.Proposed
		if p == nil || len(p.unknownFields) > 0 {
			return false
		}
		for _, id := range p.Auth {
			if id == nil || len(id.unknownFields) > 0 || !utf8.ValidString(id.Scheme) || !utf8.ValidString(id.Id) {
				return false
			}
		}
		for _, op := range p.Ops {
			if !op.plain() {
				return false
			}
		}
		return true
	}
	return false
}

func (x *Op) plain() bool {
	if x == nil || len(x.unknownFields) > 0 {
		return false
	}
	switch o := x.GetOp().(type) {
	case *Op_SetData:
		return o.SetData != nil && len(o.SetData.unknownFields) == 0 && utf8.ValidString(o.SetData.Path)
	case *Op_Create:
		if o.Create == nil || len(o.Create.unknownFields) > 0 || !utf8.ValidString(o.Create.Path) {
			return false
		}
		for _, acl := range o.Create.Acl {
			if acl == nil || len(acl.unknownFields) > 0 || !utf8.ValidString(acl.Scheme) || !utf8.ValidString(acl.Id) {
				return false
			}
		}
		return true
	}
	return false
}

// short is the size of a plain event that is no pack.
func (e *Event) short() int { return framed(e.Body.(*Event_Proposed).Proposed.short()) }

func (e *Event) appendShort(b []byte) []byte {
	p := e.Body.(*Event_Proposed).Proposed
	b = frame(b, 1, p.short())
	if p.Session != 0 {
		b = protowire.AppendFixed64(append(b, 1<<3|byte(protowire.Fixed64Type)), uint64(p.Session))
	}
	for _, op := range p.Ops {
		b = op.appendShort(frame(b, 2, op.short()))
	}
	if p.Multi {
		b = append(b, 3<<3|byte(protowire.VarintType), 1)
	}
	for _, id := range p.Auth {
		b = frame(b, 4, texted(id.Scheme)+texted(id.Id))
		b = appendText(appendText(b, 1, id.Scheme), 2, id.Id)
	}
	return b
}

func (x *Proposed) short() (n int) {
	if x.Session != 0 {
		n += 9
	}
	for _, op := range x.Ops {
		n += framed(op.short())
	}
	if x.Multi {
		n += 2
	}
	for _, id := range x.Auth {
		n += framed(texted(id.Scheme) + texted(id.Id))
	}
	return n
}

func (x *Op) short() int {
	if o, ok := x.Op.(*Op_SetData); ok {
		return framed(o.SetData.short())
	}
	return framed(x.Op.(*Op_Create).Create.short())
}

func (x *Op) appendShort(b []byte) []byte {
	if o, ok := x.Op.(*Op_SetData); ok {
		s := o.SetData
		b = appendText(frame(b, 3, s.short()), 1, s.Path)
		if s.Data != nil {
			b = append(frame(b, 2, len(s.Data)), s.Data...)
		}
		return appendNumber(b, 3, int64(s.Version))
	}
	c := x.Op.(*Op_Create).Create
	b = appendText(frame(b, 1, c.short()), 1, c.Path)
	if c.Data != nil {
		b = append(frame(b, 2, len(c.Data)), c.Data...)
	}
	for _, acl := range c.Acl {
		b = appendNumber(frame(b, 3, acl.short()), 1, int64(acl.Perms))
		b = appendText(appendText(b, 2, acl.Scheme), 3, acl.Id)
	}
	b = appendNumber(b, 4, int64(c.Mode))
	return appendNumber(b, 5, c.TtlMs)
}

func (x *SetData) short() int {
	n := texted(x.Path) + numbered(int64(x.Version))
	if x.Data != nil {
		n += framed(len(x.Data))
	}
	return n
}

func (x *Create) short() int {
	n := texted(x.Path) + numbered(int64(x.Mode)) + numbered(x.TtlMs)
	if x.Data != nil {
		n += framed(len(x.Data))
	}
	for _, acl := range x.Acl {
		n += framed(acl.short())
	}
	return n
}

func (x *ACL) short() int { return numbered(int64(x.Perms)) + texted(x.Scheme) + texted(x.Id) }

// All fields here have numbers below 16, and so tags of one byte.

// frame writes what stands before n bytes.
func frame(b []byte, num byte, n int) []byte {
	return protowire.AppendVarint(append(b, num<<3|byte(protowire.BytesType)), uint64(n))
}

func framed(n int) int { return 1 + protowire.SizeVarint(uint64(n)) + n }

func appendText(b []byte, num byte, s string) []byte {
	if s == "" {
		return b
	}
	return append(frame(b, num, len(s)), s...)
}

func texted(s string) int {
	if s == "" {
		return 0
	}
	return framed(len(s))
}

func appendNumber(b []byte, num byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, num<<3|byte(protowire.VarintType)), uint64(v))
}

func numbered(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v))
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, len(b)+n), b...)
}

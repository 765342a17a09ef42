package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

var openACL = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

func pick[T any](d *differ, of ...T) T { return of[d.rng.IntN(len(of))] }

// path is one below the root, most often; now and then none that ZooKeeper accepts.
func (d *differ) path() string {
	switch n := d.rng.IntN(100); {
	case n < 3 && d.root != d.base: // nothing that another lane may use
		return pick(d, "a", "//", d.root+"/", d.root+"//a", d.root+"/.", d.root+"/a/./b", d.root+"/a\x00b", d.root+"/\u00e9", d.root+"/a b")
	case n < 3:
		return pick(d, "", "a", "/", "//", d.base+"/", d.base+"//a", d.base+"/../a", d.base+"/.", d.base+"/a/./b", "/zookeeper", "/zookeeper/quota",
			d.base+"/\x01", d.base+"/a\x00b", d.base+"/\u009f", d.base+"/\ue000", d.base+"/\ufff1", d.base+"/"+beyond, d.base+"/\u00e9", d.base+"/..a", d.base+"/a b")
	case n < 35 && len(d.made) > 0:
		if p := d.made[d.rng.IntN(len(d.made))]; strings.HasPrefix(p, d.root+"/") {
			return p
		}
	}
	p := d.root
	for range 1 + d.rng.IntN(3) {
		p += "/" + pick(d, "a", "b", "c")
	}
	return p
}

func (d *differ) paths() []string {
	list := make([]string, d.rng.IntN(4))
	for i := range list {
		list[i] = d.echoed()
	}
	return list
}

// echoed is a path that may come back though no node has it. ZooKeeper writes what lies
// beyond UTF-16 as two halves of three bytes each, which is no UTF-8.
func (d *differ) echoed() string {
	return strings.ReplaceAll(d.path(), beyond, "x")
}

const beyond = "\U0001F600"

func (d *differ) version() int32 { return pick(d, int32(-1), -1, -1, 0, 0, 1, 2, 3, -2) }

func (d *differ) bytes() []byte {
	return pick(d, nil, []byte{}, []byte("x"), []byte("some data"), []byte{0, 255, 128}, []byte(strings.Repeat("long ", 20)))
}

func digest(user string) string {
	sum := sha1.Sum([]byte(user + ":secret"))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

func (d *differ) acl() []wire.ACL {
	if d.rng.IntN(4) > 0 {
		return openACL
	}
	one := func() wire.ACL {
		a := pick(d,
			wire.ACL{Scheme: "world", ID: "anyone"}, wire.ACL{Scheme: "auth"}, wire.ACL{Scheme: "ip", ID: "127.0.0.1"},
			wire.ACL{Scheme: "ip", ID: "10.0.0.0/8"}, wire.ACL{Scheme: "digest", ID: digest("u0")}, wire.ACL{Scheme: "digest", ID: digest("u1")},
			wire.ACL{Scheme: "digest", ID: digest("u2")})
		a.Perms = pick(d, int32(31), 1, 2, 3, 7, 16, 17, 0)
		return a
	}
	if d.rng.IntN(8) == 0 {
		bad := pick(d, wire.ACL{Scheme: "digest", ID: "nohash"}, wire.ACL{Scheme: "ip", ID: "300.1.1.1"}, wire.ACL{Scheme: "ip", ID: "1.2.3.4/33"},
			wire.ACL{Scheme: "world", ID: "somebody"}, wire.ACL{Scheme: "nobody", ID: "x"}, wire.ACL{Scheme: "digest", ID: "a:b:c"}, wire.ACL{})
		bad.Perms = 31
		return pick(d, nil, []wire.ACL{bad}, []wire.ACL{one(), bad})
	}
	list := []wire.ACL{one()}
	for d.rng.IntN(2) == 0 {
		list = append(list, one())
	}
	return list
}

// create is one of the four kinds of create.
func (d *differ) create(path string, flags int32, acl []wire.ACL) ask {
	q := wire.CreateRequest{Path: path, Data: d.bytes(), ACL: acl, Flags: flags}
	op := pick(d, wire.OpCreate, wire.OpCreate2)
	switch flags {
	case 4:
		op = wire.OpCreateContainer
	case 5, 6:
		op = wire.OpCreateTTL
		q.TTL = pick(d, int64(1_000_000_000), 1_000_000_000, 0, -1, 1<<40, 1<<40-1)
	}
	if !d.inMulti && d.rng.IntN(30) == 0 { // the operation decides, not the mode
		op = pick(d, wire.OpCreate, wire.OpCreate2)
	}
	if op == wire.OpCreateTTL && q.TTL == 0 && d.rng.IntN(2) == 0 {
		q.TTL = -1
	}
	return ask{op: op, what: fmt.Sprintf("create %d %+v", op, q), body: func(w *wire.Writer) { q.Encode(w, op == wire.OpCreateTTL) }, read: reader(op)}
}

// reader reads the body of a successful reply.
func reader(op wire.Op) func(*wire.Reader) []field {
	path := func(r *wire.Reader) field { return field{text: r.Text()} }
	switch op {
	case wire.OpCreate, wire.OpSync:
		return func(r *wire.Reader) []field { return []field{path(r)} }
	case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return func(r *wire.Reader) []field { return append([]field{path(r)}, stat(r)...) }
	case wire.OpSetData, wire.OpSetACL, wire.OpExists:
		return stat
	case wire.OpGetData:
		return data
	case wire.OpGetChildren, wire.OpGetEphemerals:
		return func(r *wire.Reader) []field { return []field{set(r)} }
	case wire.OpGetChildren2:
		return func(r *wire.Reader) []field { return append([]field{set(r)}, stat(r)...) }
	case wire.OpGetACL:
		return func(r *wire.Reader) []field {
			acl := wire.DecodeACLs(r) // what "auth" stands for comes in the order of a hash
			slices.SortFunc(acl, func(a, b wire.ACL) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			return append([]field{plain("%v", acl)}, stat(r)...)
		}
	case wire.OpGetAllChildrenNumber, wire.OpAddWatch:
		return func(r *wire.Reader) []field { return []field{plain("%d", r.Int32())} }
	case wire.OpMulti, wire.OpMultiRead:
		return multi
	}
	return nil
}

// multi reads results up to the last one.
func multi(r *wire.Reader) (f []field) {
	for r.Err() == nil {
		var h wire.MultiHeader
		h.Decode(r)
		f = append(f, plain("%+v", h))
		if h.Done {
			break
		}
		if h.Op == wire.OpError {
			f = append(f, plain("%d", r.Int32()))
		} else if read := reader(h.Op); read != nil {
			f = append(f, read(r)...)
		}
	}
	return f
}

func (d *differ) delete(path string) ask {
	q := wire.PathVersion{Path: path, Version: d.version()}
	return ask{op: wire.OpDelete, what: fmt.Sprintf("delete %+v", q), body: q.Encode}
}

func (d *differ) setData(path string, version int32) ask {
	q := wire.SetDataRequest{Path: path, Data: d.bytes(), Version: version}
	return ask{op: wire.OpSetData, path: path, what: fmt.Sprintf("setData %+v", q), body: q.Encode, read: stat}
}

func (d *differ) bump() ask { return d.setData(d.base, -1) }

func (d *differ) setACL() ask {
	q := wire.SetACLRequest{Path: d.path(), ACL: d.acl(), Version: d.version()}
	if q.Path == d.base || q.Path == "/" || strings.HasPrefix(q.Path, "/zookeeper") {
		q.ACL = openACL // or nothing would happen any more
	}
	return ask{op: wire.OpSetACL, what: fmt.Sprintf("setACL %+v", q), body: q.Encode, read: stat}
}

func (d *differ) multi() ask {
	d.inMulti = true
	defer func() { d.inMulti = false }()
	var parts []ask
	for range d.rng.IntN(5) {
		switch d.rng.IntN(5) {
		case 0, 1:
			parts = append(parts, d.create(d.path(), int32(d.rng.IntN(7)), d.acl()))
		case 2:
			parts = append(parts, d.delete(d.path()))
		case 3:
			parts = append(parts, d.setData(d.path(), d.version()))
		default:
			q := wire.PathVersion{Path: d.path(), Version: d.version()}
			parts = append(parts, ask{op: wire.OpCheck, what: fmt.Sprintf("check %+v", q), body: q.Encode})
		}
	}
	return joined(wire.OpMulti, parts)
}

func joined(op wire.Op, parts []ask) ask {
	what := fmt.Sprintf("multi %d", op)
	for _, p := range parts {
		what += "; " + p.what
	}
	return ask{op: op, what: what, read: multi, body: func(w *wire.Writer) {
		for _, p := range parts {
			(&wire.MultiHeader{Op: p.op, Err: -1}).Encode(w)
			p.body(w)
		}
		wire.MultiEnd().Encode(w)
	}}
}

func (d *differ) read(op wire.Op, watch bool) ask {
	q := wire.PathWatch{Path: d.path(), Watch: watch}
	return ask{op: op, path: q.Path, what: fmt.Sprintf("read %d %+v", op, q), body: q.Encode, read: reader(op)}
}

func onPath(op wire.Op, path string) ask {
	return ask{op: op, what: fmt.Sprintf("op %d %q", op, path), body: (&wire.Path{Path: path}).Encode, read: reader(op)}
}

// recursive makes every path's persistent watches of one mode: 3.8 keeps but one.
func recursive(path string) bool {
	h := fnv.New32()
	_, _ = h.Write([]byte(path)) // never fails
	return h.Sum32()%3 == 0
}

func (d *differ) anything(i int) ask {
	watch := i != persistent && d.rng.IntN(4) > 0
	switch n := d.rng.IntN(100); {
	case n < 22:
		flags := pick(d, int32(0), 0, 0, 1, 1, 2, 3, 4, 5, 6)
		if d.rng.IntN(60) == 0 {
			flags = pick(d, int32(7), -1, 100)
		}
		return d.create(d.path(), flags, d.acl())
	case n < 34:
		return d.delete(d.path())
	case n < 44:
		return d.setData(d.path(), d.version())
	case n < 47:
		return d.setACL()
	case n < 55:
		return d.multi()
	case n < 62:
		return d.read(wire.OpGetData, watch)
	case n < 70:
		return d.read(wire.OpExists, watch)
	case n < 74:
		return d.read(wire.OpGetChildren, watch)
	case n < 80:
		return d.read(wire.OpGetChildren2, watch)
	case n < 84:
		return onPath(wire.OpGetACL, d.path())
	case n < 86:
		return onPath(wire.OpGetAllChildrenNumber, d.path())
	case n < 88:
		if d.root != d.base {
			return onPath(wire.OpGetEphemerals, pick(d, d.root, d.root+"/a"))
		}
		return onPath(wire.OpGetEphemerals, pick(d, "", "/", d.base, d.base+"/a", "/none"))
	case n < 90:
		return onPath(wire.OpSync, d.echoed())
	case n < 91:
		return ask{op: wire.OpWhoAmI, what: "whoAmI", read: whoAmI}
	case n < 94:
		parts := make([]ask, d.rng.IntN(4))
		for k := range parts {
			parts[k] = d.read(pick(d, wire.OpGetData, wire.OpGetChildren), watch)
		}
		return joined(wire.OpMultiRead, parts)
	}
	// checkWatches is left out: 3.8 says yes to everybody when somebody watches the path.
	q := wire.PathMode{Path: d.path(), Mode: 3} // any kind of watch
	op := wire.OpRemoveWatches
	if i != persistent {
		q.Mode = pick(d, int32(1), 2, 3, 9)
	} else if d.rng.IntN(3) > 0 {
		op = wire.OpAddWatch
		q.Mode = 0
		if recursive(q.Path) {
			q.Mode = 1
		}
		if d.rng.IntN(30) == 0 {
			q.Mode = 7
		}
	}
	return ask{op: op, what: fmt.Sprintf("watches %d %+v", op, q), body: q.Encode, read: reader(op)}
}

func whoAmI(r *wire.Reader) []field {
	var ids []string
	for range r.Int32() {
		ids = append(ids, r.Text()+" "+r.Text())
	}
	return []field{plain("%q", slices.Sorted(slices.Values(ids)))}
}

func (d *differ) addAuth() ask {
	q := wire.AuthPacket{Scheme: "digest", Auth: []byte(pick(d, "u0", "u1", "u2") + ":secret")}
	if d.rng.IntN(4) == 0 {
		q = wire.AuthPacket{Scheme: "ip"}
	}
	return ask{op: wire.OpAuth, what: fmt.Sprintf("addAuth %s %q", q.Scheme, q.Auth), body: q.Encode, xid: wire.XidAuth}
}

// malformed is a request that ends within itself.
func (d *differ) malformed() ask {
	a := pick(d, d.create(d.path(), 0, openACL), d.delete(d.path()), d.setData(d.path(), -1), d.setACL(), d.read(wire.OpGetData, false),
		d.read(wire.OpGetChildren2, false), onPath(wire.OpGetACL, "/x"), onPath(wire.OpSync, "/x"))
	cut := 1 + d.rng.IntN(3)
	return ask{op: a.op, what: "malformed " + a.what, noZxid: true, body: func(w *wire.Writer) {
		a.body(w)
		w.B = w.B[:len(w.B)-cut]
	}}
}

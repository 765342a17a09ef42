package tree

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Lists that every tree has.
const (
	openACL     uint32 = iota // everybody may do everything
	readOnlyACL               // everybody may read
)

// aclRef is a node's list of ACLs and its version; zero: open, never set.
type aclRef struct {
	list    uint32
	version int32
}

// acls keeps each distinct list once.
type acls struct {
	lists []aclList
	byKey map[string]uint32
	free  []uint32
}

type aclList struct {
	acl  []wire.ACL // never changed
	key  string
	uses int
}

func newACLs() acls {
	a := acls{byKey: map[string]uint32{}}
	for _, perms := range []int32{wire.PermAll, wire.PermRead} {
		a.retain(a.intern([]wire.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}))
	}
	return a
}

// intern is the number of the list, which must be retained to stay.
func (a *acls) intern(list []wire.ACL) uint32 {
	var k []byte
	for _, e := range list {
		k = binary.AppendVarint(k, int64(e.Perms))
		k = binary.AppendUvarint(k, uint64(len(e.Scheme)))
		k = append(k, e.Scheme...)
		k = binary.AppendUvarint(k, uint64(len(e.ID)))
		k = append(k, e.ID...)
	}
	if i, ok := a.byKey[string(k)]; ok {
		return i
	}
	var i uint32
	if n := len(a.free); n > 0 {
		i, a.free = a.free[n-1], a.free[:n-1]
	} else {
		i = uint32(len(a.lists))
		a.lists = append(a.lists, aclList{})
	}
	a.lists[i] = aclList{acl: list, key: string(k)}
	a.byKey[string(k)] = i
	return i
}

func (a *acls) retain(i uint32) {
	if i > readOnlyACL {
		a.lists[i].uses++
	}
}

func (a *acls) release(i uint32) {
	if i <= readOnlyACL {
		return
	}
	l := &a.lists[i]
	if l.uses--; l.uses > 0 {
		return
	}
	delete(a.byKey, l.key)
	*l = aclList{}
	a.free = append(a.free, i)
}

func (a *acls) freeze() acls { return acls{lists: slices.Clone(a.lists)} }

// FixACL is what ZooKeeper makes of the list that a client asks for: each entry once, "auth"
// replaced by the identities the client has shown; false when an entry is none, or
// nothing is left. A list of more than MaxACL entries is none.
func FixACL(asked []wire.ACL, auth []Identity) ([]wire.ACL, bool) {
	var unique, list []wire.ACL
	if len(asked) > MaxACL {
		return nil, false
	}
	for _, a := range asked {
		if !slices.Contains(unique, a) {
			unique = append(unique, a)
		}
	}
	for _, e := range unique {
		switch {
		case e.Scheme == "world" && e.ID == "anyone":
			list = append(list, e)
		case e.Scheme == "auth":
			n := len(list)
			for _, id := range auth {
				if id.Scheme == "digest" { // an address is nobody's proof, and super needs no list
					list = append(list, wire.ACL{Perms: e.Perms, Scheme: id.Scheme, ID: id.ID})
				}
			}
			if len(list) == n || len(list) > MaxACL {
				return nil, false
			}
		case e.Scheme == "digest" && digestID(e.ID), e.Scheme == "ip" && ipID(e.ID):
			list = append(list, e)
		default:
			return nil, false
		}
	}
	return list, len(list) > 0
}

// Allowed says whether a client with these identities may do what perm names on a node
// with this list, as ZooKeeper decides it. Identities are taken as they stand in a proposal
// or in its event.
func Allowed[I interface {
	GetScheme() string
	GetId() string
}](list []wire.ACL, perm int32, auth []I) bool {
	if len(list) == 0 {
		return true
	}
	for _, id := range auth {
		if id.GetScheme() == "super" {
			return true
		}
	}
	for _, e := range list {
		if e.Perms&perm == 0 {
			continue
		}
		if e.Scheme == "world" && e.ID == "anyone" {
			return true
		}
		for _, id := range auth {
			if id.GetScheme() != e.Scheme {
				continue
			}
			if (e.Scheme == "digest" && id.GetId() == e.ID) || (e.Scheme == "ip" && ipMatches(id.GetId(), e.ID)) {
				return true
			}
		}
	}
	return false
}

// digestID is user:hash. Java's split passes over what is empty behind the last colon.
func digestID(id string) bool {
	return len(strings.Split(strings.TrimRight(id, ":"), ":")) == 2
}

func ipID(id string) bool {
	addr, bits, mask := strings.Cut(id, "/")
	if _, ok := ip4(addr); !ok {
		return false
	}
	n, err := strconv.ParseInt(bits, 10, 32)
	return !mask || (err == nil && n >= 0 && n <= 32)
}

// ipMatches says whether addr lies in the range of expr, address[/bits].
func ipMatches(addr, expr string) bool {
	base, mask, masked := strings.Cut(expr, "/")
	want, ok := ip4(base)
	if !ok {
		return false
	}
	bits := int64(8 * len(want))
	if masked {
		var err error
		if bits, err = strconv.ParseInt(mask, 10, 32); err != nil || bits < 0 || bits > int64(8*len(want)) {
			return false
		}
	}
	have, ok := ip4(addr)
	if !ok {
		return false
	}
	a, b := binary.BigEndian.Uint32(want[:]), binary.BigEndian.Uint32(have[:])
	return (a^b)>>(32-bits) == 0
}

// ip4 reads an address as ZooKeeper does: four decimal numbers, whatever their zeros.
// It knows no others.
func ip4(s string) (a [4]byte, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 4 {
		return a, false
	}
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 || n > 255 {
			return a, false
		}
		a[i] = byte(n)
	}
	return a, true
}

package server

import (
	"crypto/sha1" //nolint:gosec // ZooKeeper's digest scheme is defined by it
	"crypto/subtle"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// identities are what a client has shown with addauth; none: nothing that is known here.
// Whoever shows the super digest may do everything.
func (c *conn) identities(q wire.AuthPacket) []*znode.Identity {
	switch q.Scheme {
	case "digest":
		id := Digest(string(q.Auth))
		if super := c.s.cfg.SuperDigest; super != "" && subtle.ConstantTimeCompare([]byte(id.Id), []byte(super)) == 1 {
			return []*znode.Identity{{Scheme: "super"}, id}
		}
		return []*znode.Identity{id}
	case "ip":
		return []*znode.Identity{{Scheme: "ip", Id: c.host}}
	}
	return nil
}

// Digest is the identity of "user:password": user:base64(sha1(user:password)).
func Digest(userPassword string) *znode.Identity {
	userPassword = utf8(userPassword)
	user, _, _ := strings.Cut(userPassword, ":")
	sum := sha1.Sum([]byte(userPassword))
	return &znode.Identity{Scheme: "digest", Id: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// show adds an identity to the connection's.
func (c *conn) show(id *znode.Identity) {
	old := *c.auth.Load()
	if slices.ContainsFunc(old, func(o *znode.Identity) bool { return o.Scheme == id.Scheme && o.Id == id.Id }) {
		return
	}
	all := append(slices.Clone(old), id) // the old list may be in a proposal
	c.auth.Store(&all)
}

// May says whether the client may do on a node with this list what perm names.
func (c *conn) May(acl []wire.ACL, perm int32) bool {
	return tree.Allowed(acl, perm, *c.auth.Load())
}

// masked hides the hashes of passwords from those who may not set the list.
func masked(acl []wire.ACL) []wire.ACL {
	list := slices.Clone(acl)
	for i, a := range list {
		if user, _, ok := strings.Cut(a.ID, ":"); ok && a.Scheme == "digest" {
			list[i].ID = user + ":x"
		}
	}
	return list
}

// utf8 is s as Java reads it: what is no UTF-8 becomes U+FFFD, which no path may hold.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

package tree

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func TestAddressesOfACLs(t *testing.T) {
	for id, want := range map[string]bool{
		"1.2.3.4": true, "0.0.0.0": true, "255.255.255.255": true, "1.2.3.4/0": true, "1.2.3.4/1": true, "1.2.3.4/32": true, "001.2.3.4": true,
		"1.2.3.4/33": false, "1.2.3.4/-1": false, "1.2.3.4/x": false, "1.2.3.4/": false, "1.2.3": false, "1.2.3.4.5": false, "1.2.3.256": false, "-1.2.3.4": false, "": false, "::1": false,
	} {
		if got := ipID(id); got != want {
			t.Errorf("%q is an address: %v", id, got)
		}
		if got := ipMatches("1.2.3.4", id); got && !want {
			t.Errorf("1.2.3.4 lies in %q", id)
		}
	}
	for expr, want := range map[string]bool{
		"1.2.3.4": true, "1.2.3.5": false, "9.9.9.9/0": true, "9.9.9.9/1": true, "129.0.0.0/1": false, "1.2.3.5/31": true, "1.2.3.6/31": false, "1.2.3.4/32": true, "1.2.3.5/32": false, "1.2.9.9/16": true, "1.3.3.4/16": false,
	} {
		if got := ipMatches("1.2.3.4", expr); got != want {
			t.Errorf("1.2.3.4 lies in %q: %v", expr, got)
		}
		if ipMatches("no address", expr) {
			t.Errorf("what is no address lies in %q", expr)
		}
	}
	for id, want := range map[string]bool{"u:h": true, ":h": true, "u:h::": true, "u": false, "u:": false, "u:h:x": false, "": false} {
		if got := digestID(id); got != want {
			t.Errorf("%q is user and hash: %v", id, got)
		}
	}
}

func TestListsOfACLs(t *testing.T) {
	one := wire.ACL{Perms: 1, Scheme: "world", ID: "anyone"}
	auth := wire.ACL{Perms: 3, Scheme: "auth"}
	many := func(n int) (list []wire.ACL) {
		for i := range n {
			list = append(list, wire.ACL{Perms: int32(i), Scheme: "world", ID: "anyone"})
		}
		return list
	}
	shown := func(n int) (ids []Identity) {
		for i := range n {
			ids = append(ids, Identity{Scheme: "digest", ID: fmt.Sprint("u", i, ":h")})
		}
		return ids
	}
	for name, tc := range map[string]struct {
		asked []wire.ACL
		auth  []Identity
		want  int // entries; 0: none is taken
	}{
		"none": {nil, nil, 0}, "one": {many(1), nil, 1}, "the same twice": {[]wire.ACL{one, one}, nil, 1}, "as many as may be": {many(MaxACL), nil, MaxACL}, "one more": {many(MaxACL + 1), nil, 0},
		"what was shown": {[]wire.ACL{one, auth}, shown(2), 3}, "nothing was shown": {[]wire.ACL{one, auth}, nil, 0}, "only an address was": {[]wire.ACL{auth}, []Identity{{Scheme: "ip", ID: "1.2.3.4"}}, 0},
		"as much as may be shown": {[]wire.ACL{auth}, shown(MaxACL), MaxACL}, "more": {[]wire.ACL{auth}, shown(MaxACL + 1), 0},
		"a world of somebody": {[]wire.ACL{{Scheme: "world", ID: "me"}}, nil, 0}, "no such scheme": {[]wire.ACL{one, {Scheme: "x", ID: "anyone"}}, nil, 0}, "no digest": {[]wire.ACL{{Scheme: "digest", ID: "u"}}, nil, 0},
		"an address": {[]wire.ACL{{Scheme: "ip", ID: "1.2.3.4/8"}}, nil, 1}, "no address": {[]wire.ACL{{Scheme: "ip", ID: "1.2.3"}}, nil, 0}, "an address as digest": {[]wire.ACL{{Scheme: "digest", ID: "1.2.3.4"}}, nil, 0},
	} {
		list, ok := FixACL(tc.asked, tc.auth)
		if ok != (tc.want > 0) || ok && len(list) != tc.want {
			t.Errorf("%s: %d entries, %v, want %d", name, len(list), ok, tc.want)
		}
	}
	list := []wire.ACL{{Perms: wire.PermRead, Scheme: "digest", ID: "u:h"}, {Perms: wire.PermWrite, Scheme: "ip", ID: "10.0.0.0/8"}}
	for _, tc := range []struct {
		perm  int32
		id    Identity
		allow bool
	}{
		{wire.PermRead, Identity{Scheme: "digest", ID: "u:h"}, true}, {wire.PermWrite, Identity{Scheme: "digest", ID: "u:h"}, false}, {wire.PermRead, Identity{Scheme: "digest", ID: "v:h"}, false},
		{wire.PermWrite, Identity{Scheme: "ip", ID: "10.1.2.3"}, true}, {wire.PermRead, Identity{Scheme: "ip", ID: "10.1.2.3"}, false}, {wire.PermWrite, Identity{Scheme: "ip", ID: "11.1.2.3"}, false},
		{wire.PermRead, Identity{Scheme: "ip", ID: "u:h"}, false}, {wire.PermAdmin, Identity{Scheme: "super"}, true}, {wire.PermRead, Identity{}, false},
	} {
		if got := Allowed(list, tc.perm, []Identity{tc.id}); got != tc.allow {
			t.Errorf("%v may do %d: %v", tc.id, tc.perm, got)
		}
	}
	if !Allowed[Identity](nil, wire.PermAdmin, nil) || !Allowed[Identity]([]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}, wire.PermRead, nil) || Allowed[Identity]([]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}, wire.PermWrite, nil) || Allowed[Identity]([]wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "me"}}, wire.PermRead, nil) {
		t.Error("what everybody may do")
	}
}

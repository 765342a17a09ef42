package ensemble

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

func everybody(perms int32) []wire.ACL {
	return []wire.ACL{{Perms: perms, Scheme: "world", ID: "anyone"}}
}

// Every line of the table is one rule of whose access list it is.
func TestDecideACL(t *testing.T) {
	bridge, alone := syncState{bridge: true}, syncState{}
	refused := syncState{bridge: true, kept: map[string]int32{"/p": 3}}
	us := func(acl []wire.ACL, version int32) *localNode { return &localNode{acl: acl, aversion: version} }
	held := func(acl []wire.ACL, version int32) *localNode {
		return &localNode{acl: acl, aversion: version, held: true}
	}
	them := func(acl []wire.ACL, version int32) *remoteNode { return &remoteNode{acl: acl, aversion: version} }
	a, b := everybody(31), everybody(1)
	hidden := []wire.ACL{{Perms: 31, Scheme: "digest", ID: "u:x"}}
	for _, tc := range []struct {
		name  string
		o     *localNode
		t     *remoteNode
		p     syncState
		want  action
		drift bool
	}{
		{"only here", us(a, 0), nil, bridge, agree, false},
		{"only there", nil, them(a, 0), bridge, agree, false},
		{"the same", us(a, 2), them(a, 2), bridge, agree, false},
		{"not read", us(a, 2), them(nil, 3), bridge, agree, false},
		{"not to be read", us(a, 2), &remoteNode{opaque: true, acl: b}, bridge, agree, false},
		{"digests hidden", us(a, 2), them(hidden, 3), bridge, agree, false},
		{"set here", us(b, 1), them(a, 0), bridge, setACL, false},
		{"set here, and back", us(a, 2), them(a, 0), bridge, setACL, false},
		{"set there", us(a, 0), them(b, 1), bridge, importACL, false},
		{"set there, and back", us(a, 0), them(a, 2), bridge, importACL, false},
		{"set on both sides", us(a, 1), them(b, 1), bridge, importACL, false},
		{"set there and refused", us(a, 2), them(b, 3), refused, setACL, true},
		{"set there again after that", us(a, 2), them(b, 4), refused, importACL, false},
		{"held, set there", held(a, 0), them(b, 1), bridge, setACL, true},
		{"held, put right", held(a, 0), them(a, 2), bridge, agree, false},
		{"held, set here", held(b, 1), them(a, 0), bridge, setACL, false},
		{"no bridge, set there", us(a, 0), them(b, 1), alone, setACL, true},
		{"no bridge, put right", us(a, 0), them(a, 2), alone, agree, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if v, drift := decideACL("/p", tc.o, tc.t, &tc.p); v != tc.want || drift != tc.drift {
				t.Errorf("%v, drift %v; want %v, %v", v, drift, tc.want, tc.drift)
			}
		})
	}
}

// However lists are set on both sides, and whenever the mirror looks, is overtaken, or
// dies while it sets one: both sides end up with the same list, set equally often; a list
// is imported at most once, and set over there no more often than here; and what was set
// last, after the sides had been the same, is what both have.
func TestListsDoNotGoRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := syncState{bridge: true}
		o, x := &localNode{acl: everybody(31)}, &remoteNode{acl: everybody(31)}
		var setHere, setThere, imports, sets int
		// step compares and acts; between says what others do after the comparison, stop how
		// many lists are set before the mirror dies, -1: it lives.
		step := func(between func(), stop int) action {
			read, seen := *o, *x
			v, _ := decideACL("/p", &read, &seen, &p)
			between()
			switch v {
			case setACL:
				for n := seen.aversion; n == seen.aversion || n < read.aversion; n++ {
					if stop == 0 || x.aversion != n { // it is dead, or was overtaken
						break
					}
					stop--
					x.acl, x.aversion = read.acl, n+1
					sets++
				}
			case importACL:
				o.acl, o.aversion = seen.acl, seen.aversion
				imports++
			}
			return v
		}
		here := func(perms int32) { o.acl, o.aversion = everybody(perms), o.aversion+1; setHere++ }
		there := func(perms int32) { x.acl, x.aversion = everybody(perms), x.aversion+1; setThere++ }
		nobody := func() {}
		perms := rapid.Int32Range(1, 4)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"here", "there", "compare", "overtaken", "dies"}).Draw(t, "what") {
			case "here":
				here(perms.Draw(t, "perms"))
			case "there":
				there(perms.Draw(t, "perms"))
			case "compare":
				step(nobody, -1)
			case "overtaken":
				if n := perms.Draw(t, "perms"); rapid.Bool().Draw(t, "here") {
					step(func() { here(n) }, -1)
				} else {
					step(func() { there(n) }, -1)
				}
			case "dies":
				step(nobody, rapid.IntRange(0, 2).Draw(t, "stop"))
			}
		}
		rest := func() {
			for range 3 {
				step(nobody, -1)
			}
			if v := step(nobody, -1); v != agree || !slices.Equal(o.acl, x.acl) || o.aversion != x.aversion {
				t.Fatalf("still %v: here %v of %d, there %v of %d", v, o.acl, o.aversion, x.acl, x.aversion)
			}
		}
		rest()
		if imports > setThere || sets > setHere+setThere {
			t.Fatalf("%d imports and %d sets by the mirror, of %d lists here and %d there", imports, sets, setHere, setThere)
		}
		last := everybody(16)
		if rapid.Bool().Draw(t, "the last is ours") {
			here(16)
		} else {
			there(16)
		}
		if rest(); !slices.Equal(o.acl, last) {
			t.Fatalf("the last list was lost: %v", o.acl)
		}
	})
}

package znode_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/znode"
)

func samples() []*znode.Event {
	world := []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}
	digest := append(world[:1:1], &znode.ACL{Perms: 1, Scheme: "digest", Id: "a:b"})
	var all []*znode.Event
	for _, ops := range [][]*znode.Op{
		{{Op: &znode.Op_Create{Create: &znode.Create{Path: "/a", Data: []byte("x"), Acl: digest, Mode: znode.Mode_EPHEMERAL_SEQUENTIAL, TtlMs: 5}}}},
		{{Op: &znode.Op_Create{Create: &znode.Create{Path: "/ä", Acl: world}}}},
		{{Op: &znode.Op_Create{Create: &znode.Create{Path: "/a", Data: []byte{}}}}},
		{{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: "/a", Data: []byte("xyz"), Version: -1}}}},
		{{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: "/a"}}}},
		{{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/a", Version: 3}}}},
		{{Op: &znode.Op_Check{Check: &znode.Check{Path: "/a"}}}},
		{{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/a"}}}, {Op: &znode.Op_Delete{Delete: &znode.Delete{Path: "/b"}}}},
		{{}}, nil,
	} {
		all = append(all, &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: -7, Ops: ops, Auth: []*znode.Identity{{Scheme: "ip", Id: "::1"}}}}},
			&znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: ops, Multi: true}}})
	}
	pack := func(events ...*znode.Event) *znode.Event {
		return &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: events}}}
	}
	all = append(all, pack(), pack(all...), pack(all[0]), pack(&znode.Event{}, all[3]), pack(pack(all[1])))
	return append(all, &znode.Event{}, &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: 1, TimeoutMs: 2, PasswordHash: make([]byte, 32)}}},
		&znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 1, Reason: "closed"}}})
}

// FuzzArena holds the short way against protobuf's own: the same message or no message.
func FuzzArena(f *testing.F) {
	var used [][]byte
	for _, e := range samples() {
		b, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		used = append(used, b)
	}
	f.Add([]byte{0x0a, 0x06, 0x12, 0x04, 0x12, 0x02, 0x0a, 0x00})
	f.Add([]byte{0x0a, 0x07, 0x12, 0x05, 0x12, 0x03, 0x0a, 0x01, 0xff}) // a path that is no UTF-8
	f.Fuzz(func(t *testing.T, b []byte) {
		var a znode.Arena
		for i := range 3 {
			if i == 2 { // into memory that held something else
				a.Reset()
				for _, e := range used {
					if _, err := a.Unmarshal(e); err != nil {
						t.Fatal(err)
					}
				}
				a.Reset()
			}
			want := new(znode.Event)
			werr := proto.Unmarshal(b, want)
			got, err := a.Unmarshal(bytes.Clone(b))
			if (err == nil) != (werr == nil) || err == nil && !proto.Equal(got, want) {
				t.Fatalf("%x: got %v, %v; want %v, %v", b, got, err, want, werr)
			}
		}
	})
}

// Events decoded side by side do not disturb one another, nor does what an arena held
// before it was reset.
func TestArenaKeepsEventsApart(t *testing.T) {
	var a znode.Arena
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		keepsApart(t, &a, rng)
		a.Reset()
	}
}

func keepsApart(t *testing.T, a *znode.Arena, rng *rand.Rand) {
	t.Helper()
	all := samples()
	var got, want []*znode.Event
	for range 2000 {
		e := all[rng.IntN(len(all))]
		b, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		d, err := a.Unmarshal(b)
		if err != nil {
			t.Fatal(err)
		}
		got, want = append(got, d), append(want, e)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Fatalf("event %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

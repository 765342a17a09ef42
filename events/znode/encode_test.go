package znode_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/znode"
)

// same holds the short way against protobuf's own: the same bytes, or both refuse.
func same(t *testing.T, e *znode.Event) {
	t.Helper()
	want, werr := proto.MarshalOptions{Deterministic: true}.Marshal(e)
	got, err := e.AppendBinary([]byte("before"))
	if (err == nil) != (werr == nil) || err == nil && !bytes.Equal(got, append([]byte("before"), want...)) {
		t.Fatalf("%v is written as\n%x, %v; protobuf writes\n%x, %v", e, got, err, want, werr)
	}
	if err == nil && e.Size() != len(want) {
		t.Fatalf("%v: size %d, want %d", e, e.Size(), len(want))
	}
}

func TestAppendBinary(t *testing.T) {
	all := samples()
	for _, e := range all {
		same(t, e)
	}
	pack := func(in ...*znode.Event) *znode.Event {
		return &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: in}}}
	}
	same(t, pack())
	same(t, pack(all...))
	same(t, pack(all[:6]...)) // creates alone
	same(t, pack(pack(all[0])))
	same(t, pack(nil, all[0]))
	long := string(bytes.Repeat([]byte("p"), 200))
	for _, path := range []string{"", "/" + long, "/\xff"} {
		for _, data := range [][]byte{nil, {}, make([]byte, 20_000)} {
			for _, id := range []string{"", "anyone", "\xff"} {
				acl := []*znode.ACL{{Perms: -1, Scheme: id, Id: long}, {}}
				who := []*znode.Identity{{Scheme: "ip", Id: id}, {}}
				create := &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Data: data, Acl: acl, Mode: -1, TtlMs: -5}}}
				set := &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: data, Version: 300}}}
				same(t, pack(
					&znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: 1 << 60, Ops: []*znode.Op{create}}}},
					&znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Multi: true, Ops: []*znode.Op{set, create}, Auth: who}}}))
			}
		}
	}
	later := &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{}}}
	later.GetProposed().ProtoReflect().SetUnknown([]byte{0x78, 0x01}) // of a later build
	same(t, pack(later))
}

// FuzzAppendBinary writes whatever protobuf can read.
func FuzzAppendBinary(f *testing.F) {
	for _, e := range samples() {
		b, err := proto.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := new(znode.Event)
		if proto.Unmarshal(b, e) == nil {
			same(t, e)
			same(t, &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: []*znode.Event{e, e}}}})
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	var in []*znode.Event
	for range 500 {
		in = append(in, &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Session: 7, Auth: []*znode.Identity{{Scheme: "ip", Id: "127.0.0.1"}},
			Ops: []*znode.Op{{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: "/set/0000001", Data: make([]byte, 100), Version: -1}}}}}}})
	}
	e := &znode.Event{Body: &znode.Event_Pack{Pack: &znode.Pack{Events: in}}}
	for name, encode := range map[string]func() ([]byte, error){
		"short":    func() ([]byte, error) { return e.AppendBinary(nil) },
		"protobuf": func() ([]byte, error) { return proto.MarshalOptions{Deterministic: true}.Marshal(e) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := encode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package server

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// superDigest is that of super:test, as in ZooKeeper's own tests.
const superDigest = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

func showing(user string) func(*wire.Writer) {
	return (&wire.AuthPacket{Scheme: "digest", Auth: []byte(user)}).Encode
}

// rare are requests that hardly anybody sends, with what comes behind them.
func rare(w *wireClient) (said []string) {
	say := func(what string, op wire.Op, parts ...func(*wire.Writer)) {
		w.t.Helper()
		xid := int32(len(said) + 1)
		w.ask(xid, op, parts...)
		h, r := w.reply(xid)
		said = append(said, fmt.Sprintf("%s: %d, %d bytes", what, h.Err, r.Len()))
	}
	nobodys := func(w *wire.Writer) {
		(&wire.CreateRequest{Path: "/lost", Data: []byte("x"), ACL: []wire.ACL{{Perms: 31, Scheme: "digest", ID: "nobody:x"}}}).Encode(w, false)
	}
	config := (&wire.SetDataRequest{Path: "/zookeeper/config", Data: []byte("c"), Version: -1}).Encode
	say("reconfig", wire.OpReconfig, func(w *wire.Writer) {
		w.Buffer(nil)
		w.String("3")
		w.Buffer(nil)
		w.Int64(-1)
	})
	say("exists behind it", wire.OpExists, on("/", false))
	say("create what nobody may", wire.OpCreate, nobodys)
	say("read it", wire.OpGetData, on("/lost", false))
	say("config", wire.OpSetData, config)
	say("another's digest", wire.OpAuth, showing("super:no"))
	say("read it", wire.OpGetData, on("/lost", false))
	say("the super digest", wire.OpAuth, showing("super:test"))
	say("read it", wire.OpGetData, on("/lost", false))
	say("its list", wire.OpGetACL, func(w *wire.Writer) { w.String("/lost") })
	say("set its list", wire.OpSetACL, (&wire.SetACLRequest{Path: "/lost", ACL: open31, Version: -1}).Encode)
	say("config", wire.OpSetData, config)
	say("as whoever I am", wire.OpCreate, func(w *wire.Writer) {
		(&wire.CreateRequest{Path: "/mine", ACL: []wire.ACL{{Perms: 31, Scheme: "auth"}}}).Encode(w, false)
	})
	say("its list", wire.OpGetACL, func(w *wire.Writer) { w.String("/mine") })
	say("whoami", wire.OpWhoAmI)
	say("remove it", wire.OpDelete, (&wire.PathVersion{Path: "/lost", Version: -1}).Encode)
	return said
}

func TestRareRequestsKeepTheConnection(t *testing.T) {
	h, _ := writable(t, Config{SuperDigest: superDigest})
	said := rare(h.connect(wire.ConnectRequest{}))
	for i, want := range []string{"reconfig: -6, 0 bytes", "exists behind it: 0, 68 bytes",
		"create what nobody may: 0, 9 bytes", "read it: -102, 0 bytes", "config: -102, 0 bytes", "another's digest: 0, 0 bytes", "read it: -102, 0 bytes",
		"the super digest: 0, 0 bytes", "read it: 0, 73 bytes"} {
		if said[i] != want {
			t.Errorf("%q, want %q", said[i], want)
		}
	}
	sasl := h.connect(wire.ConnectRequest{})
	sasl.ask(1, wire.OpSASL, func(w *wire.Writer) { w.Buffer([]byte("token")) })
	if head, r := sasl.reply(1); head.Err != wire.AuthFailed || head.Zxid != 0 || r.Buffer() != nil || r.Err() != nil || r.Len() != 0 {
		t.Errorf("sasl: %+v", head)
	}
	sasl.gone()
	plain, _ := writable(t, Config{}) // without a super user nobody is one
	a := plain.connect(wire.ConnectRequest{})
	a.ask(1, wire.OpAuth, showing("super:test"))
	a.code(1, wire.OK)
	a.ask(2, wire.OpSetData, (&wire.SetDataRequest{Path: "/zookeeper/config", Version: -1}).Encode)
	a.code(2, wire.NoAuth)
	a.ask(3, wire.OpAuth, (&wire.AuthPacket{Scheme: "super", Auth: []byte("super:test")}).Encode)
	a.code(3, wire.AuthFailed)
}

// TestOracleRareRequests has Apache ZooKeeper and ours answer them alike, but for
// reconfig: ours answers as one that has it enabled and is alone, theirs has it disabled.
func TestOracleRareRequests(t *testing.T) {
	real := oracle.ZooKeeper(t, "-Dzookeeper.DigestAuthenticationProvider.superDigest="+superDigest)
	h, _ := writable(t, Config{SuperDigest: superDigest})
	theirs, ours := rare(dialTo(t, real.Addr).connect(wire.ConnectRequest{TimeoutMS: 8000, Password: make([]byte, 16), HasReadOnly: true})), rare(h.connect(wire.ConnectRequest{}))
	if ours[0] != "reconfig: -6, 0 bytes" || theirs[0] != "reconfig: -123, 0 bytes" {
		t.Errorf("%q, ZooKeeper's %q", ours[0], theirs[0])
	}
	for i, want := range theirs[1:] {
		i++
		if ours[i] != want {
			t.Errorf("%q, ZooKeeper's %q", ours[i], want)
		}
	}
}

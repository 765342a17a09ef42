package zkload

import (
	"strconv"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// anyone may do anything.
var anyone = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// Name is the i-th node below parent: seven digits, as many as a million needs.
func Name(parent string, i int) string {
	b := make([]byte, 0, len(parent)+9)
	b = append(b, parent...)
	b = append(b, "/0000000"...)
	digits := strconv.AppendInt(nil, int64(i), 10)
	copy(b[len(b)-len(digits):], digits)
	return string(b)
}

// Make creates one node.
func Make(path string, data []byte) Request {
	return Request{wire.OpCreate, func(w *wire.Writer, _ int) {
		(&wire.CreateRequest{Path: path, Data: data, ACL: anyone}).Encode(w, false)
	}}
}

// Create makes the i-th node below parent.
func Create(parent string, data []byte) Request {
	return Request{wire.OpCreate, func(w *wire.Writer, i int) {
		(&wire.CreateRequest{Path: Name(parent, i), Data: data, ACL: anyone}).Encode(w, false)
	}}
}

// Set writes to one of the first nodes below parent, in turns.
func Set(parent string, nodes int, data []byte) Request {
	return Request{wire.OpSetData, func(w *wire.Writer, i int) {
		(&wire.SetDataRequest{Path: Name(parent, i%nodes), Data: data, Version: -1}).Encode(w)
	}}
}

// Get reads one of the first nodes below parent, in turns.
func Get(parent string, nodes int) Request {
	return Request{wire.OpGetData, func(w *wire.Writer, i int) {
		(&wire.PathWatch{Path: Name(parent, i%nodes)}).Encode(w)
	}}
}

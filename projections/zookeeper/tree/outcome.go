package tree

import "github.com/monolith-go/monolith/projections/zookeeper/wire"

// Outcome is the answer to a proposal.
type Outcome struct {
	// Code is 0 when everything was done, else the code of the operation that failed. A
	// multi's reply header is 0 all the same: its results carry the codes.
	Code    wire.Code
	Multi   bool
	Results []Result // one per operation; none of a session's fact
}

// OpKind is which operation a result is of.
type OpKind uint8

// The operations.
const (
	OpCreate OpKind = iota + 1
	OpDelete
	OpSetData
	OpSetACL
	OpCheck
	OpDeleteContainer
)

// Result is what became of one operation. In a failed multi, operations before the one
// that failed have code 0 and did not happen; those behind it have RuntimeInconsistency.
type Result struct {
	Op   OpKind
	Code wire.Code
	Path string    // of a create: the path made, with its sequence number
	Stat wire.Stat // of create, setData and setACL: as it was right after the operation
}

// Session is an open session of a client.
type Session struct {
	BZID         string `json:"bzid"` // namespace whose registry keeps it
	TimeoutMS    int32  `json:"timeout_ms"`
	PasswordHash Bytes  `json:"password_hash"` // SHA-256 of the password
}

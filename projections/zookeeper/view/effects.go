package view

// Effects are what one event did. They are no part of the state, and a restored snapshot
// has none. Changes are valid until the next Apply; an outcome, and paths, may be kept.
type Effects struct {
	Changes []Change // in the order in which watches fire
	Outcome *Outcome // of a proposal or of a session's fact; nil for every other event
	Closed  int64    // session that this event ended, 0: none
}

// Outcome is the answer to a proposal. Codes are ZooKeeper's.
type Outcome struct {
	// Code is 0 when everything was done, else the code of the operation that failed. A
	// multi's reply header is 0 all the same: its results carry the codes.
	Code    int32
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
	Code int32
	Path string // of a create: the path made, with its sequence number
	Stat Stat   // of create, setData and setACL: as it was right after the operation
}

// ACL grants perms to one identity or to everybody (world, anyone).
type ACL struct {
	Perms  int32  `json:"perms"`
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
}

// Bits of ACL.Perms.
const (
	PermRead   = 1
	PermWrite  = 2
	PermCreate = 4
	PermDelete = 8
	PermAdmin  = 16
	PermAll    = 31
)

// Session is an open session of a client.
type Session struct {
	BZID         string `json:"bzid"` // namespace whose registry keeps it
	TimeoutMS    int32  `json:"timeout_ms"`
	PasswordHash Bytes  `json:"password_hash"` // SHA-256 of the password
}

// Codes of outcomes, ZooKeeper's KeeperException.Code.
const (
	CodeOK                      int32 = 0
	CodeRuntimeInconsistency    int32 = -2
	CodeUnimplemented           int32 = -6
	CodeBadArguments            int32 = -8
	CodeNoNode                  int32 = -101
	CodeNoAuth                  int32 = -102
	CodeBadVersion              int32 = -103
	CodeNoChildrenForEphemerals int32 = -108
	CodeNodeExists              int32 = -110
	CodeNotEmpty                int32 = -111
	CodeSessionExpired          int32 = -112
	CodeInvalidACL              int32 = -114
)

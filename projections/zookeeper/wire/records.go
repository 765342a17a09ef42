package wire

// Op is a request's type.
type Op int32

// The operations of ZooKeeper 3.9.
const (
	OpNotification         Op = 0
	OpCreate               Op = 1
	OpDelete               Op = 2
	OpExists               Op = 3
	OpGetData              Op = 4
	OpSetData              Op = 5
	OpGetACL               Op = 6
	OpSetACL               Op = 7
	OpGetChildren          Op = 8
	OpSync                 Op = 9
	OpPing                 Op = 11
	OpGetChildren2         Op = 12
	OpCheck                Op = 13
	OpMulti                Op = 14
	OpCreate2              Op = 15
	OpReconfig             Op = 16
	OpCheckWatches         Op = 17
	OpRemoveWatches        Op = 18
	OpCreateContainer      Op = 19
	OpDeleteContainer      Op = 20
	OpCreateTTL            Op = 21
	OpMultiRead            Op = 22
	OpAuth                 Op = 100
	OpSetWatches           Op = 101
	OpSASL                 Op = 102
	OpGetEphemerals        Op = 103
	OpGetAllChildrenNumber Op = 104
	OpSetWatches2          Op = 105
	OpAddWatch             Op = 106
	OpWhoAmI               Op = 107
	OpCreateSession        Op = -10
	OpCloseSession         Op = -11
	OpError                Op = -1
)

// Code is a reply's error; 0 is success.
type Code int32

// The codes used here, by ZooKeeper's names.
const (
	OK                      Code = 0
	SystemError             Code = -1
	RuntimeInconsistency    Code = -2
	MarshallingError        Code = -5
	Unimplemented           Code = -6
	OperationTimeout        Code = -7
	BadArguments            Code = -8
	NoNode                  Code = -101
	NoAuth                  Code = -102
	BadVersion              Code = -103
	NoChildrenForEphemerals Code = -108
	NodeExists              Code = -110
	NotEmpty                Code = -111
	SessionExpired          Code = -112
	InvalidACL              Code = -114
	AuthFailed              Code = -115
	NotReadOnly             Code = -119
	NoWatcher               Code = -121
	ThrottledOp             Code = -127
)

// Xids with a meaning of their own.
const (
	XidNotification int32 = -1
	XidPing         int32 = -2
	XidAuth         int32 = -4
	XidSetWatches   int32 = -8
)

// StateConnected is the state in every watch event of a live session.
const StateConnected int32 = 3

// ConnectRequest opens or resumes a session.
type ConnectRequest struct {
	ProtocolVersion int32
	LastZxidSeen    int64
	TimeoutMS       int32
	SessionID       int64 // 0: a new one
	Password        []byte
	ReadOnly        bool // the client would do with a read-only server
	HasReadOnly     bool // the byte was there; the response then has it too
}

func (c *ConnectRequest) Encode(w *Writer) {
	w.Int32(c.ProtocolVersion)
	w.Int64(c.LastZxidSeen)
	w.Int32(c.TimeoutMS)
	w.Int64(c.SessionID)
	w.Buffer(c.Password)
	if c.HasReadOnly {
		w.Bool(c.ReadOnly)
	}
}

func (c *ConnectRequest) Decode(r *Reader) {
	*c = ConnectRequest{ProtocolVersion: r.Int32(), LastZxidSeen: r.Int64(), TimeoutMS: r.Int32(), SessionID: r.Int64(), Password: r.Buffer()}
	if c.HasReadOnly = r.Len() > 0; c.HasReadOnly {
		c.ReadOnly = r.Bool()
	}
}

// ConnectResponse answers it; a SessionID of 0 says that the session has expired.
type ConnectResponse struct {
	ProtocolVersion int32
	TimeoutMS       int32
	SessionID       int64
	Password        []byte
	ReadOnly        bool
	HasReadOnly     bool
}

func (c *ConnectResponse) Encode(w *Writer) {
	w.Int32(c.ProtocolVersion)
	w.Int32(c.TimeoutMS)
	w.Int64(c.SessionID)
	w.Buffer(c.Password)
	if c.HasReadOnly {
		w.Bool(c.ReadOnly)
	}
}

func (c *ConnectResponse) Decode(r *Reader) {
	*c = ConnectResponse{ProtocolVersion: r.Int32(), TimeoutMS: r.Int32(), SessionID: r.Int64(), Password: r.Buffer()}
	if c.HasReadOnly = r.Len() > 0; c.HasReadOnly {
		c.ReadOnly = r.Bool()
	}
}

// RequestHeader stands before every request but the first.
type RequestHeader struct {
	Xid int32
	Op  Op
}

func (h *RequestHeader) Encode(w *Writer) { w.Int32(h.Xid); w.Int32(int32(h.Op)) }
func (h *RequestHeader) Decode(r *Reader) { *h = RequestHeader{r.Int32(), Op(r.Int32())} }

// ReplyHeader stands before every reply and notification; nothing follows an error.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Err  Code
}

func (h *ReplyHeader) Encode(w *Writer) { w.Int32(h.Xid); w.Int64(h.Zxid); w.Int32(int32(h.Err)) }
func (h *ReplyHeader) Decode(r *Reader) { *h = ReplyHeader{r.Int32(), r.Int64(), Code(r.Int32())} }

// PathWatch is the request of exists, getData, getChildren and getChildren2.
type PathWatch struct {
	Path  string
	Watch bool
}

func (p *PathWatch) Encode(w *Writer) { w.String(p.Path); w.Bool(p.Watch) }
func (p *PathWatch) Decode(r *Reader) { *p = PathWatch{r.Text(), r.Bool()} }

// Path is the request of getACL, and request and reply of sync.
type Path struct{ Path string }

func (p *Path) Encode(w *Writer) { w.String(p.Path) }
func (p *Path) Decode(r *Reader) { *p = Path{r.String()} }

// Stat is a node's figures; zxids and times (Unix ms) are int64 on the wire.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime  int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

func (s *Stat) Encode(w *Writer) {
	w.Int64(s.Czxid)
	w.Int64(s.Mzxid)
	w.Int64(s.Ctime)
	w.Int64(s.Mtime)
	w.Int32(s.Version)
	w.Int32(s.Cversion)
	w.Int32(s.Aversion)
	w.Int64(s.EphemeralOwner)
	w.Int32(s.DataLength)
	w.Int32(s.NumChildren)
	w.Int64(s.Pzxid)
}

func (s *Stat) Decode(r *Reader) {
	*s = Stat{
		Czxid: r.Int64(), Mzxid: r.Int64(), Ctime: r.Int64(), Mtime: r.Int64(),
		Version: r.Int32(), Cversion: r.Int32(), Aversion: r.Int32(), EphemeralOwner: r.Int64(),
		DataLength: r.Int32(), NumChildren: r.Int32(), Pzxid: r.Int64(),
	}
}

// ACL grants perms to one identity or to everybody (world, anyone). Its JSON is that of
// snapshots.
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

func (a *ACL) Encode(w *Writer) { w.Int32(a.Perms); w.String(a.Scheme); w.String(a.ID) }
func (a *ACL) Decode(r *Reader) { *a = ACL{r.Int32(), r.String(), r.String()} }

// AuthPacket is the request of OpAuth.
type AuthPacket struct {
	Type   int32
	Scheme string
	Auth   []byte
}

func (a *AuthPacket) Encode(w *Writer) { w.Int32(a.Type); w.String(a.Scheme); w.Buffer(a.Auth) }
func (a *AuthPacket) Decode(r *Reader) { *a = AuthPacket{r.Int32(), r.String(), r.Buffer()} }

// WatcherEvent follows a notification's header.
type WatcherEvent struct {
	Type  int32 // 1 created, 2 deleted, 3 data changed, 4 children changed
	State int32
	Path  string
}

func (e *WatcherEvent) Encode(w *Writer) { w.Int32(e.Type); w.Int32(e.State); w.String(e.Path) }
func (e *WatcherEvent) Decode(r *Reader) { *e = WatcherEvent{r.Int32(), r.Int32(), r.String()} }

// SetWatches re-registers watches after a reconnect; what changed after RelativeZxid
// fires at once. The last two lists are SetWatches2's.
type SetWatches struct {
	RelativeZxid                int64
	Data, Exist, Child          []string
	Persistent, PersistentRecur []string
}

func (s *SetWatches) Encode(w *Writer, two bool) {
	w.Int64(s.RelativeZxid)
	w.Strings(s.Data)
	w.Strings(s.Exist)
	w.Strings(s.Child)
	if two {
		w.Strings(s.Persistent)
		w.Strings(s.PersistentRecur)
	}
}

func (s *SetWatches) Decode(r *Reader, two bool) {
	*s = SetWatches{RelativeZxid: r.Int64(), Data: r.Strings(), Exist: r.Strings(), Child: r.Strings()}
	if two {
		s.Persistent, s.PersistentRecur = r.Strings(), r.Strings()
	}
}

// MultiHeader stands before each part of a multi; the last one is Done with type -1.
type MultiHeader struct {
	Op   Op
	Done bool
	Err  Code
}

func (m *MultiHeader) Encode(w *Writer) { w.Int32(int32(m.Op)); w.Bool(m.Done); w.Int32(int32(m.Err)) }
func (m *MultiHeader) Decode(r *Reader) { *m = MultiHeader{Op(r.Int32()), r.Bool(), Code(r.Int32())} }

// MultiEnd is the header behind the last part.
func MultiEnd() *MultiHeader { return &MultiHeader{OpError, true, -1} }

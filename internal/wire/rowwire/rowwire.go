// Package rowwire carries embedding rows between trainers, parameter-server shards and
// entries: framed requests over TCP or a unix socket, many in flight on one connection,
// ids and floats flat in little endian.
//
// A frame is
//
//	u32 length of what follows | u8 op | u64 request id | payload
//
// and a connection opens with a hello in which the client names a protocol version and the
// server agrees to it or refuses. A response carries the op of its request with the upper bit set, or opError.
package rowwire

import "context"

// Version is the newest protocol version, and Oldest the oldest that is still spoken:
// a connection speaks the newest that both sides know. Since 3 a lookup may name the
// version it wants; since 4 dense variables come in bands and applies in parts.
const (
	Version = 4
	Oldest  = 2

	bandsSince = 4
)

// Bounds of what either side accepts.
const (
	MaxFrame   = 16 << 20 // bytes behind the length field
	MaxIDs     = 1 << 18  // ids of one request over all its tables
	MaxTables  = 1 << 10  // tables of one request
	MaxTensors = 1 << 12  // dense variables of one message
	MaxOffsets = 1 << 16  // partitions of one offsets response
	MaxString  = 1 << 12  // bytes of a name or a message
)

// Handler answers the row protocol; a Client implements it over a connection. Refusals
// are [*Error]; any other error reaches the caller as [Unavailable]. A method returns soon
// after its ctx has ended.
//
// A request and its slices are the caller's again as soon as the method returns: handlers
// keep copies, and change nothing in it. Responses are not changed by anybody after they
// were returned: in one process, caller and handler may have the same memory.
type Handler interface {
	Lookup(ctx context.Context, r *LookupRequest) (*LookupResponse, error)
	Apply(ctx context.Context, r *ApplyRequest) (*ApplyResponse, error)
	Dense(ctx context.Context, r *DenseRequest) (*DenseResponse, error)
	Offsets(ctx context.Context, r *OffsetsRequest) (*OffsetsResponse, error)
	Scan(ctx context.Context, r *ScanRequest) (*ScanResponse, error)
}

// Conn is a server as its callers see it, over a socket or in the same process. It is safe
// for concurrent use; requests may be answered out of order. Once Err is set it is of no
// more use.
type Conn interface {
	Handler
	// LookupInto is Lookup into the memory of an earlier response, which nobody else may
	// use any more, or that Into has prepared.
	LookupInto(ctx context.Context, r *LookupRequest, res *LookupResponse) error
	// DenseInto is Dense likewise.
	DenseInto(ctx context.Context, r *DenseRequest, res *DenseResponse) error
	Err() error
	Close() error
	// Road is how requests travel: "process", "unix" or "tcp".
	Road() string
}

// TableIDs names rows of one table.
type TableIDs struct {
	Table string
	IDs   []int64
}

// LookupRequest asks for rows. A row that does not exist is answered with zeros and is
// not created. With no tables it only asks whether the version is there.
type LookupRequest struct {
	Model      string // serving: the model; training: the job
	Shard      uint32
	Tables     []TableIDs
	WithSeqs   bool   // serving: also which sync sequence wrote each row
	Turn       uint64 // deterministic training: batches learnt before this one
	Generation uint64 // deterministic training: of the shard's timeline
	Encoding   Encoding

	// Version and Job, serving: rows of this version, exported by this job, or NotFound.
	// Zero: whatever is newest. They travel where one of them is set, and not to a peer
	// that speaks a protocol older than 3.
	Version int64
	Job     string
}

// LookupResponse holds one entry per table of the request, in its order.
type LookupResponse struct {
	Values  [][]float32 // len(IDs) x dim
	Seqs    [][]uint64  // len(IDs) each, only with WithSeqs; 0: from the export, or missing
	Version int64       // serving: version that is loaded
	Step    uint64      // training: applies so far; serving: of the newest delta

	// Done, unless nil, is called by the server once the response has been written to
	// its frame: Values and Seqs may be used for the next one.
	Done func()

	encoding Encoding // of Values on the wire: what the request asked for
	counts   []int    // rows of each table
	seqs     [][]uint64
}

// TableGrads is the gradient of rows of one table: len(IDs) x dim.
type TableGrads struct {
	Table string
	IDs   []int64 // an id may repeat: its gradients are summed
	Grads []float32
}

// NamedTensor is a flat dense variable, or its gradient, or a band of either. A band that
// does not begin at 0, or is of bfloat16, travels only to a peer that speaks protocol 4.
type NamedTensor struct {
	Name   string
	At     uint32 // of the variable's numbers, where Values begin
	Values []float32
	BF16   bool // they go over a socket as bfloat16, rounded to nearest even
}

// ApplyRequest teaches a shard the Kafka records [From, To) of one partition. Every
// shard gets every range, with no gradients if need be.
//
// What is too much for one frame is sent as Parts requests, one after the other and equal but
// for Part, Tables and Dense: the shard keeps the first ones and learns all of them with the
// last. A part that the shard did not expect is [Unavailable], and all are to be sent again.
// Parts travel only to a peer that speaks protocol 4.
type ApplyRequest struct {
	Job         string
	Shard       uint32
	Partition   int32
	Epoch       uint64 // of the partition's lease
	From, To    int64
	RecordUnix  int64 // newest record's time, seconds: the rows' timestamp
	Turn        uint64
	Generation  uint64
	Traceparent string
	Encoding    Encoding // of the rows' gradients
	Tables      []TableGrads
	Dense       []NamedTensor

	Part, Parts uint32 // Part counts from 0; Parts of 0: this is all of it
}

// ApplyResponse says what the shard has recorded for the partition.
type ApplyResponse struct {
	Applied bool  // false: the range had been learnt before, or parts of it are missing
	Next    int64 // next offset to learn
}

// DenseRequest asks for the dense variables named, or for all of the shard's.
type DenseRequest struct {
	Job        string
	Shard      uint32
	Names      []string
	Turn       uint64
	Generation uint64
	At         []uint32 // where the band begins that is meant of each of Names; nil: at 0
	BF16       []bool   // which of Names may come as bfloat16, since nobody sees more of them; nil: none
}

// DenseResponse holds them in the order asked for, or by name.
type DenseResponse struct {
	Tensors []NamedTensor
	Step    uint64
}

// OffsetsRequest asks how far a shard has learnt.
type OffsetsRequest struct {
	Job   string
	Shard uint32
}

// OffsetsResponse is the answer: the writer's epoch, applies and turns so far, and per
// partition the next offset to learn.
type OffsetsResponse struct {
	Epoch, Step, Turn, Generation uint64
	Next                          map[int32]int64
}

// ScanRequest reads a table in id order, a page at a time.
type ScanRequest struct {
	Model string // serving: the model; training: the job
	Shard uint32
	Table string
	After int64  // ids above this one; math.MinInt64 starts
	Limit uint32 // rows; 0: as many as the server likes
	Slots bool   // optimizer slots too
}

// ScanResponse is one page. Slots is len(IDs) x slot size, Seqs the row tags.
type ScanResponse struct {
	Dim     uint32
	IDs     []int64
	Values  []float32
	Slots   []float32
	UnixSec []uint32
	Seqs    []uint64
	More    bool
}

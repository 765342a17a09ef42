package shardcmd

// Further endpoints of a shard's service.
const (
	Barrier = "barrier" // BarrierRequest -> BarrierResponse: waits for the other workers
	Stats   = "stats"   // {} -> StatsResponse
	Assign  = "assign"  // AssignRequest -> AssignResponse: sets rows, past the stream
	Health  = "health"  // {} -> HealthResponse
)

// BarrierRequest makes a worker wait until NumWorkers different ones have come. All of a
// round must agree on their number. Asking again is how a wait goes on that ran into its
// time-out, and does no harm.
type BarrierRequest struct {
	ID         string `json:"id"`
	Worker     string `json:"worker"`
	NumWorkers int    `json:"numWorkers"`
	// Round is the one to wait for, from 1; 0: the one that is open. A round that is over
	// answers at once.
	Round uint64 `json:"round,omitempty"`
	// TimeoutMS is how long this call may wait, up to 25 s; 0: 25 s.
	TimeoutMS int64 `json:"timeoutMs,omitempty"`
}

// BarrierResponse says which round is over.
type BarrierResponse struct {
	Round   uint64   `json:"round"`
	Workers []string `json:"workers"` // who came, sorted; empty for a round before the last
}

// CallStats counts calls of one kind since the process began.
type CallStats struct {
	Count  uint64 `json:"count"`  // failed ones too
	Failed uint64 `json:"failed"` // refused, for whatever reason
	Rows   uint64 `json:"rows"`
	// AvgLatencyUS is over all calls, failed ones too.
	AvgLatencyUS float64 `json:"avgLatencyUs"`
}

// StatsResponse is a shard in figures.
type StatsResponse struct {
	State
	Lookup  CallStats         `json:"lookup"` // of rows
	Dense   CallStats         `json:"dense"`  // fetches of dense variables
	Apply   CallStats         `json:"apply"`
	Rows    map[string]uint64 `json:"rows"`    // table -> rows
	Touched uint64            `json:"touched"` // rows that wait to be published
}

// AssignRequest sets rows of a table, or adds to them, whatever the stream says. It is
// answered once the delta that carries the rows is on disk, so a restart keeps them. A
// repeat under the same RequestID changes nothing. Deterministic jobs refuse it.
type AssignRequest struct {
	RequestID string    `json:"requestId"`
	Table     string    `json:"table"`
	IDs       []int64   `json:"ids"` // each once, all of this shard
	Values    []float32 `json:"values"`
	Add       bool      `json:"add,omitempty"` // to what the rows hold; a missing one gets its first values before
}

// AssignResponse says where the delta lies.
type AssignResponse struct {
	SyncSeq uint64 `json:"syncSeq"` // 0: it was assigned before
}

// HealthResponse says whether the shard answers.
type HealthResponse struct {
	Serving bool   `json:"serving"`
	Reason  string `json:"reason,omitempty"` // why not
}

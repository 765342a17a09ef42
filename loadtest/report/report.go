// Package report is what a demo run has to say for itself: one JSON object, one page
// for a terminal, and one self-contained HTML page with its plots.
package report

import (
	"encoding/json"
	"math"
	"time"
)

// Figure is a number that may be unknown: NaN and infinities are null in JSON.
type Figure float64

// Unknown is the figure nobody could measure.
func Unknown() Figure { return Figure(math.NaN()) }

// Known tells whether f is a number.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

func (f *Figure) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*f = Unknown()
		return nil
	}
	return json.Unmarshal(data, (*float64)(f))
}

// Report is one run. Every figure of it can be recomputed from the logs.
type Report struct {
	RatingsRead     int64 `json:"ratings_read"`     // rows of the source, broken ones included
	RatingsTrained  int64 `json:"ratings_trained"`  // records contained in every training shard
	RatingsRejected int64 `json:"ratings_rejected"` // broken rows and refused records

	// All over the same second half of the stream, each scored before its label was seen.
	AUCOnline Figure `json:"auc_online"`
	AUCFrozen Figure `json:"auc_frozen"` // of the copy frozen at half time
	AUCBest   Figure `json:"auc_best"`   // of the true probabilities; null for real ratings

	// Of one bias per user and per movie, which had learnt before each rating what the model had.
	AUCBaseline       Figure `json:"auc_baseline"`
	AUCBaselineFrozen Figure `json:"auc_baseline_frozen"` // having learnt the first half
	Lag               Lag    `json:"lag"`

	Freshness Freshness `json:"freshness_ms"`
	Predict   Predict   `json:"predict"`

	Events   map[string]int64 `json:"events"`   // type -> facts in the log up to Run.LogSeq
	Rejected map[string]int64 `json:"rejected"` // reason -> letters in the dead-letter stream

	ReplayHashEqual bool  `json:"replay_hash_equal"` // folding the log again gives each live view's hash
	ReplicasAgree   bool  `json:"replicas_agree"`    // serving rows equal the training shards'
	ModelVersion    int64 `json:"model_version"`

	Seconds                Figure `json:"seconds"`
	FirstPredictionSeconds Figure `json:"first_prediction_seconds"` // from process start
	Seed                   uint64 `json:"seed"`

	Run    Run                 `json:"run"`
	Hashes map[string]ViewHash `json:"hashes"` // live view -> its hash at a sequence
	Series Series              `json:"series"`
}

// Lag is how many ratings had been published, when a rating was scored, behind the last one
// that the model had learnt.
type Lag struct {
	P50 Figure `json:"p50"`
	P90 Figure `json:"p90"`
}

// Freshness is the time from the ack of a rating until its changed rows are served.
type Freshness struct {
	P50     Figure `json:"p50"` // by the slowest replica of each row
	P99     Figure `json:"p99"`
	Samples int64  `json:"samples"`

	FastestP50  Figure `json:"fastest_p50"`  // by the fastest replica
	FastestP99  Figure `json:"fastest_p99"`  //
	ProducedP50 Figure `json:"produced_p50"` // slowest replica, from the record's own time: before the ack, so never less
	ProducedP99 Figure `json:"produced_p99"`
}

// Predict is the open-loop load on the serving port, measured from the moment each
// call was due.
type Predict struct {
	Rate         Figure           `json:"rate"` // answered per second
	P50          Figure           `json:"p50_ms"`
	P99          Figure           `json:"p99_ms"`
	Errors       int64            `json:"errors"`
	Calls        int64            `json:"calls"`
	Batch        int              `json:"batch"` // examples per call
	ErrorsByCode map[string]int64 `json:"errors_by_code"`
	Max          Figure           `json:"max_ms"`
}

// Run says what was run, and where the logs stood when the figures were taken.
type Run struct {
	Started     time.Time `json:"started"`
	Data        string    `json:"data"` // file name, or "simulator"
	Rate        Figure    `json:"rate"` // ratings per second asked for
	BZID        string    `json:"bzid"`
	Job         string    `json:"job"`
	Model       string    `json:"model"`
	FrozenModel string    `json:"frozen_model"`
	Topic       string    `json:"topic"`
	Stream      string    `json:"stream"` // name of the source in the records' headers
	Partitions  int32     `json:"partitions"`
	Trainers    int       `json:"trainers"`
	Shards      int       `json:"shards"`         // training
	ServeShards int       `json:"serving_shards"` // serving
	Replicas    int       `json:"replicas"`       // of each serving shard
	Half        int       `json:"half"`           // index of the first rating of the second half
	Scored      int64     `json:"scored"`         // ratings with an online score
	Unlogged    int64     `json:"unlogged"`       // scores answered without an impression, dropped or lost with their model server; they count as none
	Compared    int64     `json:"compared"`       // ratings behind the AUC figures: second half, scored by both
	LogSeq      uint64    `json:"log_seq"`        // Events were counted up to here
	SyncSeq     uint64    `json:"sync_seq"`       // last delta when freshness was taken
	LetterSeq   uint64    `json:"letter_seq"`     // refusals were counted up to this dead letter; 0: all of them

	TopicEnds map[int32]int64 `json:"topic_ends"` // partition -> offset behind the last record counted; none: all of them
	SyncMs    Figure          `json:"sync_interval_ms"`
	Machine   string          `json:"machine"`
}

// ViewHash is the state of a view at a sequence of the log.
type ViewHash struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// Series are the plots' points.
type Series struct {
	AUC            []AUCPoint     `json:"auc"`
	Freshness      []LatencyPoint `json:"freshness"`      // by second of the run
	FreshnessHist  []Bucket       `json:"freshness_hist"` // of all samples
	Predict        []LatencyPoint `json:"predict"`        // by second of the run
	PredictSpread  []Percentile   `json:"predict_spread"` // of all calls
	TrainedBySec   []CountPoint   `json:"trained"`        // records trained so far
	ProducedBySec  []CountPoint   `json:"produced"`       // ratings acked so far
	FrozenAtRating int            `json:"frozen_at"`      // rating index at which the copy was frozen; 0: never
}

// AUCPoint is one window of ratings.
type AUCPoint struct {
	Ratings int    `json:"ratings"` // seen when the window closed
	Online  Figure `json:"online"`
	Frozen  Figure `json:"frozen"`
	Best    Figure `json:"best"`
}

// LatencyPoint is one second of a run.
type LatencyPoint struct {
	Second float64 `json:"second"`
	Count  int64   `json:"count"`
	P50    Figure  `json:"p50_ms"`
	P99    Figure  `json:"p99_ms"`
}

// Bucket counts samples in [From, To) milliseconds.
type Bucket struct {
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
	Count int64   `json:"count"`
}

// Percentile is one point of a latency spread.
type Percentile struct {
	Percent float64 `json:"percent"`
	Ms      float64 `json:"ms"`
}

// CountPoint is a running total.
type CountPoint struct {
	Second float64 `json:"second"`
	Count  int64   `json:"count"`
}

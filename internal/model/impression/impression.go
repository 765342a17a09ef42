// Package impression is what the entry answered, row by row, with everything it stood
// on: one JSON object per Kafka record on the topic "predictions". It joins a request to
// the deltas behind its rows, and so to the training records.
package impression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// Topic is where impressions go unless configured otherwise.
const Topic = "predictions"

// ErrMalformed is wrapped by every complaint of Decode.
var ErrMalformed = errors.New("malformed impression")

// Bounds of what Decode accepts.
const (
	MaxBytes  = 1 << 20
	MaxInputs = 4096 // and rows
)

// MaxText bounds Row.Text; what is longer is cut.
const MaxText = 128

// MaxFeatureRows is how many rows of one feature are written; of others only the number is.
const MaxFeatureRows = 256

// IDs are those of an input, without their slot. In JSON one is a number, any other count a list.
type IDs []int64

// MarshalJSON implements [json.Marshaler].
func (v IDs) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return strconv.AppendInt(nil, v[0], 10), nil
	}
	return json.Marshal(append([]int64{}, v...))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (v *IDs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]int64)(v))
	}
	var one int64
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*v = IDs{one}
	return nil
}

// Row names one embedding row that a prediction read.
type Row struct {
	Feature string `json:"feature,omitempty"` // the input that named it; servers before it was added left it out
	Table   string `json:"table"`
	ID      int64  `json:"id"`             // feature id, as tables and deltas know it
	Text    string `json:"text,omitempty"` // what the caller gave, of an id that is a hash of it; at most MaxText bytes
	Shard   uint32 `json:"shard"`          // serving shard
	Replica int32  `json:"replica"`        // of that shard
	SyncSeq uint64 `json:"syncSeq"`        // MONOLITH_SYNC sequence that wrote it; 0: not there, so zeros
}

// Impression is one row of one answered Predict.
type Impression struct {
	RequestID   string               `json:"requestId"`
	Row         int                  `json:"row"` // within the request's batch
	Model       string               `json:"model"`
	Version     int64                `json:"version"`
	TimeUS      int64                `json:"time_us"`           // when the answer was made, Unix microseconds
	TookUS      int64                `json:"took_us,omitempty"` // to make it, inside the server; 0: not known
	Shadow      bool                 `json:"shadow,omitempty"`  // a canary's candidate scored a copy: it answered nobody
	Inputs      map[string]IDs       `json:"inputs"`            // of each feature the first MaxFeatureRows
	Floats      map[string][]float32 `json:"floats,omitempty"`  // likewise
	Score       float32              `json:"score"`             // of the first task
	Scores      map[string]float32   `json:"scores,omitempty"`  // by task, of a model of several
	Rows        []Row                `json:"rows"`              // in the order of the model's features, and of a feature's ids
	More        map[string]int       `json:"more,omitempty"`    // by feature: how many rows it read beyond those of Rows
	DenseSeq    uint64               `json:"denseSeq"`          // MONOLITH_SYNC sequence of the dense variables
	Traceparent string               `json:"traceparent,omitempty"`
	Container   string               `json:"container,omitempty"` // that answered
}

// Encode is the record's value. A score that is no number cannot be written.
func Encode(i *Impression) ([]byte, error) {
	if s := float64(i.Score); math.IsNaN(s) || math.IsInf(s, 0) {
		return nil, fmt.Errorf("impression %s: score %v is not a finite number", i.RequestID, i.Score)
	}
	for task, score := range i.Scores {
		if s := float64(score); math.IsNaN(s) || math.IsInf(s, 0) {
			return nil, fmt.Errorf("impression %s: score %v of task %s is not a finite number", i.RequestID, score, task)
		}
	}
	return json.Marshal(i)
}

// Decode reads what Encode wrote; keys it does not know are ignored, so that older
// readers stand newer writers.
func Decode(data []byte) (*Impression, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are taken", ErrMalformed, len(data), MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	i := new(Impression)
	if err := d.Decode(i); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more than one JSON value", ErrMalformed)
	}
	switch {
	case i.RequestID == "":
		return nil, fmt.Errorf("%w: requestId is missing", ErrMalformed)
	case i.Model == "":
		return nil, fmt.Errorf("%w: model is missing", ErrMalformed)
	case i.Row < 0 || i.TookUS < 0:
		return nil, fmt.Errorf("%w: row is %d, and it took %d µs", ErrMalformed, i.Row, i.TookUS)
	case len(i.Inputs) > MaxInputs || len(i.Floats) > MaxInputs || len(i.Rows) > MaxInputs || len(i.More) > MaxInputs:
		return nil, fmt.Errorf("%w: %d inputs and %d rows, at most %d are taken", ErrMalformed, len(i.Inputs), len(i.Rows), MaxInputs)
	}
	return i, nil
}

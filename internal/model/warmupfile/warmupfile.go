// Package warmupfile is the file of requests that a model server replays before a version is AVAILABLE: a TFRecord
// of PredictionLogs in the version's folder, as TensorFlow Serving has it.
package warmupfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/tfrecord"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	// Name is where it lies in the folder of a version.
	Name = "assets.extra/tf_serving_warmup_requests"
	// MaxRequests is how many TensorFlow Serving replays.
	MaxRequests = 1000

	maxRecord = 16 << 20 // bytes of one: what a caller may send
)

// ErrTooMany is a file of more than MaxRequests.
var ErrTooMany = errors.New("it has too many requests")

// Requests are those of a file, in their order, until the first error. That is ErrTooMany, or it names the record, from 0.
func Requests(r io.Reader) iter.Seq2[*apis.PredictionLog, error] {
	return func(yield func(*apis.PredictionLog, error) bool) {
		records := tfrecord.NewReader(bufio.NewReader(r), maxRecord)
		for n := 0; ; n++ {
			record, err := records.Next()
			recorded := &apis.PredictionLog{}
			switch {
			case err == io.EOF:
				return
			case err != nil:
				err = fmt.Errorf("record %d is broken: %w", n, err)
			case n == MaxRequests:
				err = ErrTooMany
			default:
				if err = proto.Unmarshal(record, recorded); err != nil {
					err = fmt.Errorf("record %d is no PredictionLog: %w", n, err)
				}
			}
			if !yield(recorded, err) || err != nil {
				return
			}
		}
	}
}

// Encode is the file of Predicts.
func Encode(requests []*apis.PredictRequest) ([]byte, error) {
	var file bytes.Buffer
	w := tfrecord.NewWriter(&file)
	for _, r := range requests {
		record, err := proto.MarshalOptions{Deterministic: true}.Marshal(&apis.PredictionLog{
			LogType: &apis.PredictionLog_PredictLog{PredictLog: &apis.PredictLog{Request: r}}})
		if err == nil {
			err = w.Write(record)
		}
		if err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
}

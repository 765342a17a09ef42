package modelserver

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/monolith-go/monolith/kernels/par"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	"github.com/wamuir/graft/tensorflow/serving/servables/tensorflow_go_proto"
)

// newBatcher takes BatchingParameters from their file unless the platform's has given them, of which those that are not named have TensorFlow Serving's
// defaults; nil: requests are not batched.
func newBatcher(cfg Config, file *tensorflow_go_proto.BatchingParameters, reg prometheus.Registerer) (*entry.Batcher, error) {
	if !cfg.EnableBatching {
		return nil, nil
	}
	from := cfg.PlatformConfigFile
	if file == nil {
		file, from = &tensorflow_go_proto.BatchingParameters{}, cfg.BatchingParametersFile
	}
	if cfg.BatchingParametersFile != "" {
		if _, err := readText("--batching-parameters-file", cfg.BatchingParametersFile, file); err != nil {
			return nil, err
		}
	}
	or := func(v *wrapperspb.Int64Value, fallback int) int {
		if v == nil {
			return fallback
		}
		return int(v.GetValue())
	}
	p := entry.Batching{
		MaxRows:     or(file.GetMaxBatchSize(), 1000),
		Timeout:     time.Duration(or(file.GetBatchTimeoutMicros(), 0)) * time.Microsecond,
		MaxEnqueued: or(file.GetMaxEnqueuedBatches(), 10),
		Threads:     or(file.GetNumBatchThreads(), par.Processors()),
		Large:       file.GetEnableLargeBatchSplitting().GetValue(),
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("the batching parameters of %s: %w", from, err)
	}
	return entry.NewBatcher(p, reg), nil
}

package product

import (
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/loadtest/bench/kernels"
)

// trainRecords are n JSON records of a model's fields, in which some ids come up far more often than
// others.
func trainRecords(spec *model.ModelSpec, n int) []kafka.Record {
	rng := rand.New(rand.NewPCG(11, uint64(n)))
	zipf := rand.NewZipf(rng, 1.1, 20, kernels.Vocabulary-1)
	label := spec.GetLabel()
	if label == nil {
		label = spec.GetTasks()[0].GetLabel()
	}
	out := make([]kafka.Record, n)
	for i := range out {
		line := []byte{'{'}
		for _, f := range spec.GetFeatures() {
			field := f.GetField()
			if field == "" {
				field = f.GetName()
			}
			line = strconv.AppendUint(append(strconv.AppendQuote(line, field), ':'), zipf.Uint64(), 10)
			line = append(line, ',')
		}
		line = append(strconv.AppendQuote(line, label.GetField()), ':')
		line = strconv.AppendFloat(line, float64(rng.IntN(2))*label.GetThreshold(), 'f', -1, 64)
		out[i] = kafka.Record{Partition: -1, Key: strconv.AppendInt(nil, int64(i), 10), Value: slices.Clip(append(line, '}'))}
	}
	return out
}

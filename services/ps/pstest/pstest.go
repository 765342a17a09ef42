// Package pstest has what the tests of a parameter server's packages share: small models, and
// requests to a shard that trains them.
package pstest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/compress"
)

const (
	// BZID and Job name the job that the requests are to.
	BZID = "test"
	Job  = "job"
)

// Counting is a model in which a row is minus the sum of its gradients.
func Counting() *model.ModelSpec {
	sgd := &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	zeros := &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}
	return &model.ModelSpec{
		Name:     "counting",
		Features: []*model.Feature{{Name: "u", Field: "u", Slot: 1, Table: "user"}, {Name: "m", Field: "m", Slot: 2, Table: "movie"}},
		Tables: []*model.Table{
			{Name: "user", Dim: 2, Optimizer: sgd, Initializer: zeros},
			{Name: "movie", Dim: 3, Optimizer: sgd, Initializer: zeros},
		},
		Layers:         []*model.DenseLayer{{Name: "out", Units: 1, Activation: model.Activation_SIGMOID}},
		DenseOptimizer: sgd,
		Label:          &model.Label{Field: "y", Threshold: 1},
	}
}

// Learning is a model with drawn values and optimizer slots.
func Learning() *model.ModelSpec {
	adagrad := &model.Optimizer{Kind: &model.Optimizer_Adagrad{Adagrad: &model.Adagrad{LearningRate: 0.05, InitialAccumulatorValue: 0.1}}}
	uniform := &model.Initializer{Kind: &model.Initializer_RandomUniform{RandomUniform: &model.RandomUniform{Min: -0.1, Max: 0.1}}}
	m := Counting()
	m.Name, m.Seed, m.DenseOptimizer = "learning", 7, adagrad
	for _, t := range m.Tables {
		t.Optimizer, t.Initializer = adagrad, uniform
	}
	return m
}

// Deep is a DeepFM of 26 features of 16 numbers with 1024-256-32: its first kernel, of 416 by
// 1024, is two bands, and so is the second.
func Deep() *model.ModelSpec {
	m := Learning()
	m.Name, m.Features, m.Layers = "deep", nil, nil
	m.Tables[0].Dim, m.Tables[1].Dim = 16, 16
	for i := range 26 {
		m.Features = append(m.Features, &model.Feature{Name: fmt.Sprintf("c%d", i), Field: fmt.Sprintf("c%d", i), Slot: uint32(i + 1), Table: m.Tables[i%2].Name})
	}
	m.Outputs = []*model.Output{{Name: "v", Type: model.Output_STACK, Slices: []string{"*"}}}
	m.Layers = []*model.DenseLayer{
		{Name: "pairs", Inputs: []string{"v"}, Kind: &model.DenseLayer_Fm{Fm: &model.Fm{}}},
		{Name: "deep", Inputs: []string{"v"}, Kind: &model.DenseLayer_Mlp{Mlp: &model.Mlp{Units: []uint32{1024, 256, 32, 1}}}},
		{Name: "logit", Inputs: []string{"pairs", "deep"}, Kind: &model.DenseLayer_Add{Add: &model.AddLayer{}}},
	}
	m.Tasks = []*model.Task{{Name: "score", Logit: "logit"}}
	return m
}

// Halves declares serving rows of halves.
func Halves() *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_Fp16{Fp16: &model.Fp16{}}}
}

// Bytes declares serving rows of a byte for each number up to r.
func Bytes(r float32) *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_FixedR8{FixedR8: &model.FixedR8{R: proto.Float32(r)}}}
}

// Bits declares serving rows of signs.
func Bits() *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_OneBit{OneBit: &model.OneBit{Amplitude: proto.Float32(.3)}}}
}

// Teach is an apply of one range with gradient g for each element of the users' rows.
func Teach(shard, partition int, from, to int64, g float32, users ...int64) *rowwire.ApplyRequest {
	r := &rowwire.ApplyRequest{Job: Job, Shard: uint32(shard), Partition: int32(partition), Epoch: 1, From: from, To: to, RecordUnix: 1000}
	if len(users) > 0 {
		grads := make([]float32, 2*len(users))
		for i := range grads {
			grads[i] = g
		}
		r.Tables = []rowwire.TableGrads{{Table: "user", IDs: users, Grads: grads}}
	}
	return r
}

// OnDay is Teach at a time of records.
func OnDay(unix int64, from int64, users ...int64) *rowwire.ApplyRequest {
	r := Teach(0, 0, from, from+1, 1, users...)
	r.RecordUnix = unix
	return r
}

// Set is an assignment of users' rows.
func Set(id string, ids []int64, values ...float32) shardcmd.AssignRequest {
	return shardcmd.AssignRequest{RequestID: id, Table: "user", IDs: ids, Values: values}
}

// Code is the code of a refused command, or the error in words.
func Code(err error) string {
	var r *bus.CommandError
	if errors.As(err, &r) {
		return r.Code
	}
	return fmt.Sprint(err)
}

// Row reads the bytes of one row of r.
func Row(r *delta.Rows, b []byte) []float32 {
	v := make([]float32, r.GetDim())
	switch r.GetEncoding() {
	case delta.Encoding_FP16:
		compress.FP16{}.Decode(v, b)
	case delta.Encoding_INT8:
		for i := range v {
			v[i] = float32(int8(b[i])) * r.GetScale()
		}
	case delta.Encoding_BITS:
		for i := range v {
			if v[i] = -r.GetScale(); b[i/8]>>(i%8)&1 == 1 {
				v[i] = r.GetScale()
			}
		}
	default:
		copy(v, Floats(b))
	}
	return v
}

// Floats reads numbers of a delta.
func Floats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// Wide is a model whose dense variables are about those of a DeepFM of 26 features, and an
// apply to it with the rows of a batch of 512, whose ids [Renew] draws.
func Wide() (*model.ModelSpec, *rowwire.ApplyRequest) {
	spec := Learning()
	for _, units := range []uint32{448, 512, 448} {
		spec.Layers = slices.Insert(spec.Layers, 0, &model.DenseLayer{Name: "l" + string(rune('a'+len(spec.Layers))), Units: units, Activation: model.Activation_RELU})
	}
	spec.Tables[0].Dim = 16
	r := &rowwire.ApplyRequest{Job: Job, Epoch: 1, RecordUnix: 1, Tables: []rowwire.TableGrads{{Table: "user"}}}
	random := rand.New(rand.NewPCG(1, 1))
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(random.NormFloat64() * 1e-3)
		}
		return v
	}
	const rows = 13_309
	r.Tables[0].IDs = make([]int64, rows)
	r.Tables[0].Grads = draw(16 * rows)
	for _, v := range modelspec.Variables(spec) {
		r.Dense = append(r.Dense, rowwire.NamedTensor{Name: v.Name, Values: draw(v.Size)})
	}
	return spec, r
}

// Renew draws the ids of another batch.
func Renew(r *rowwire.ApplyRequest, random *rand.Rand) {
	for i := range r.Tables[0].IDs {
		r.Tables[0].IDs[i] = random.Int64N(400_000)
	}
	r.From, r.To = r.To, r.To+512
}

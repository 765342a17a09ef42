package input

import (
	"bytes"
	"fmt"
	"testing"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// movies and wide are a record of the demo, and one of a model of 26 features.
func movies(b *testing.B) (spec *model.ModelSpec, json, example []byte) {
	return modelspec.MovieRanking(), []byte(`{"userId":610,"movieId":168252,"rating":4.0,"timestamp":964982703}`), rating(b, "title", nil)
}

func wide(b *testing.B) (spec *model.ModelSpec, json, wire []byte) {
	spec = &model.ModelSpec{Label: &model.Label{Field: "label", Threshold: 1}}
	text, features := bytes.NewBufferString(`{"label":1`), map[string]*tf.Feature{"label": ints(1)}
	for i := range 26 {
		name, id := fmt.Sprintf("C%d", i+1), int64(i)*7919*104729
		spec.Features = append(spec.Features, &model.Feature{Name: name, Field: name, Slot: uint32(i + 1)})
		fmt.Fprintf(text, `,%q:%d`, name, id)
		features[name] = ints(id)
	}
	return spec, append(text.Bytes(), '}'), example(b, features)
}

// Decode of both formats beside the libraries that read them whole: ns/op of one process tell
// the ratio.
func BenchmarkDecode(b *testing.B) {
	for name, record := range map[string]func(*testing.B) (*model.ModelSpec, []byte, []byte){"movies": movies, "wide": wide} {
		spec, json, wire := record(b)
		measure := func(what string, record []byte, decode func([]byte) error) {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(record)))
				for b.Loop() {
					if err := decode(record); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		for format, record := range map[Format][]byte{JSON: json, Example: wire} {
			d := New(spec, Options{Format: format})
			measure(format.String(), record, func(r []byte) error {
				_, err := d.Decode(r)
				return err
			})
		}
		measure("encoding-json", json, func(r []byte) error {
			_, err := reference(spec, Options{}, r)
			return err
		})
		measure("proto-unmarshal", wire, func(r []byte) error { return proto.Unmarshal(r, new(tf.Example)) })
	}
}

// Into of a step's records, as a trainer takes them.
func BenchmarkInto(b *testing.B) {
	spec, json, wire := wide(b)
	adagrad := &model.Optimizer{Kind: &model.Optimizer_Adagrad{Adagrad: &model.Adagrad{LearningRate: 0.1, InitialAccumulatorValue: 0.1}}}
	spec.Name, spec.DenseOptimizer = "wide", adagrad
	spec.Tables = []*model.Table{{Name: "t", Dim: 4, Optimizer: adagrad, Initializer: &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}}}
	spec.Layers = []*model.DenseLayer{{Name: "out", Units: 1, Activation: model.Activation_SIGMOID}}
	for _, f := range spec.GetFeatures() {
		f.Table = "t"
	}
	e, err := runtime.New(spec, 1, 512)
	if err != nil {
		b.Fatal(err)
	}
	for format, record := range map[Format][]byte{JSON: json, Example: wire} {
		d, batch := New(spec, Options{Format: format}), e.NewBatch()
		b.Run(format.String(), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%512 == 0 {
					batch.Reset()
				}
				if err := d.Into(batch, record, Position{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

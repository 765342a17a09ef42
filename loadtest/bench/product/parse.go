package product

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/kernels"
	"github.com/monolith-go/monolith/loadtest/peers"
)

// The records of the benchmark of parsing: a batch of samples of one id in each field, and a label.
const (
	parseFields = 26
	parseBatch  = 512
	parseColumn = 64 // samples of an ExampleBatch
)

const parseSpec = `
name: parse
features: [{name: "fc_slot_{1..26}", slot: "{1..26}", table: c, ids: FID}]
tables: [{name: c, dim: 1}]
layers: [{name: logit, units: 1}]
tasks: [{logit: logit, label: {field: __LABEL__.0, threshold: 1}}]
dense_optimizer: {adagrad: {learning_rate: 0.01, initial_accumulator_value: 0.1}}
`

// parsed is one sample, in the words of all formats.
type parsed struct {
	ids   [parseFields]int64 // of version 2: the slot stands above 48 bits
	label float32
}

// Parse measures how fast records become a batch's samples, on one thread, beside a library that reads the same
// samples whole: of JSON encoding/json, of the others TensorFlow's parse_example, which has no reader for Monolith's
// formats and gets them as tf.train.Example.
func Parse() bench.Benchmark {
	return bench.Benchmark{Name: "parse", About: "records of each format into samples, against encoding/json and TensorFlow's parse_example", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		p, err := peers.TensorFlow(ctx, "parse", parseFields, parseBatch)
		if err := r.Missing(err); err != nil {
			return err
		}
		if p != nil {
			defer func() { err = errors.Join(err, p.Close()) }()
		}
		all := drawParsed(parseBatch)
		for _, format := range []input.Format{input.JSON, input.Example, input.MonolithExample, input.ExampleBatch, input.Instance} {
			records, err := parseRecords(format, all)
			if err != nil {
				return err
			}
			ours, err := parseRate(format, records)
			if err != nil {
				return err
			}
			c := bench.Comparison{
				Name: "parse/format=" + format.String(), Baseline: "TensorFlow parse_example", Warm: true,
				Figures: []bench.Figure{{Unit: "samples/s", Better: bench.Higher, Target: 5}}, Ours: one(ours),
			}
			switch {
			case format == input.JSON:
				c.Baseline, c.Figures[0].Target, c.Peer = "encoding/json", 10, one(jsonRate(records))
			case p != nil:
				c.Peer = one(bench.PeerRate(p, "parse", parseBatch))
			}
			if err := r.Compare(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}}
}

// one is a pass of one figure.
func one(rate bench.Rate) bench.Pass {
	return func(ctx context.Context) ([]float64, error) {
		v, err := rate(ctx)
		return []float64{v}, err
	}
}

func drawParsed(n int) []parsed {
	rng := rand.New(rand.NewPCG(5, uint64(n)))
	all := make([]parsed, n)
	for i := range all {
		for f := range all[i].ids {
			all[i].ids[f] = modelspec.FID(uint32(f+1), rng.Int64N(kernels.Vocabulary))
		}
		all[i].label = float32(rng.IntN(2))
	}
	return all
}

func parseField(f int) string { return fmt.Sprintf("fc_slot_%d", f+1) }

// parseRecords writes samples in a format.
func parseRecords(format input.Format, all []parsed) (records [][]byte, err error) {
	add := func(record []byte, failed error) { records, err = append(records, record), errors.Join(err, failed) }
	if format == input.ExampleBatch {
		for at := 0; at < len(all); at += parseColumn {
			add(proto.Marshal(columns(all[at:min(at+parseColumn, len(all))])))
		}
		return records, err
	}
	for _, s := range all {
		switch format {
		case input.JSON:
			fields := map[string]any{"__LABEL__.0": s.label}
			for f, id := range s.ids {
				fields[parseField(f)] = id
			}
			add(json.Marshal(fields))
		case input.Example:
			fields := map[string]*tf.Feature{"__LABEL__.0": {Kind: &tf.Feature_FloatList{FloatList: &tf.FloatList{Value: []float32{s.label}}}}}
			for f, id := range s.ids {
				fields[parseField(f)] = &tf.Feature{Kind: &tf.Feature_Int64List{Int64List: &tf.Int64List{Value: []int64{id}}}}
			}
			add(proto.MarshalOptions{Deterministic: true}.Marshal(&tf.Example{Features: &tf.Features{Feature: fields}}))
		case input.MonolithExample:
			e := &matrixpb.Example{Label: []float32{s.label}}
			for f, id := range s.ids {
				e.NamedFeature = append(e.NamedFeature, &matrixpb.NamedFeature{Name: parseField(f), Feature: feature(id)})
			}
			add(proto.Marshal(e))
		case input.Instance:
			in := &idlpb.Instance{Label: []float32{s.label}}
			for _, id := range s.ids { // version 1 has the slot above 54 bits
				in.Fid = append(in.Fid, uint64(modelspec.SlotOf(id))<<54|uint64(id)&modelspec.MaxID)
			}
			add(proto.Marshal(in))
		default:
			return nil, fmt.Errorf("nobody writes records of format %v", format)
		}
	}
	return records, err
}

func feature(id int64) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: []uint64{uint64(id)}}}}
}

// columns are samples as an ExampleBatch.
func columns(all []parsed) *matrixpb.ExampleBatch {
	b := &matrixpb.ExampleBatch{BatchSize: int32(len(all))}
	for f := range parseFields {
		list := &matrixpb.NamedFeatureList{Name: parseField(f)}
		for _, s := range all {
			list.Feature = append(list.Feature, feature(s.ids[f]))
		}
		b.NamedFeatureList = append(b.NamedFeatureList, list)
	}
	labels := &matrixpb.NamedFeatureList{Name: "__LABEL__"}
	for _, s := range all {
		labels.Feature = append(labels.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: []float32{s.label}}}})
	}
	b.NamedFeatureList = append(b.NamedFeatureList, labels)
	return b
}

// parser reads records into a batch as a trainer does.
type parser struct {
	batch   *runtime.Batch
	decoder *input.Decoder
	records [][]byte
}

func newParser(format input.Format, records [][]byte) (*parser, error) {
	spec, err := specfile.Parse([]byte(parseSpec))
	if err != nil {
		return nil, err
	}
	e, err := runtime.New(spec, 1, parseBatch)
	if err != nil {
		return nil, err
	}
	return &parser{e.NewBatch(), input.New(spec, input.Options{Format: format}), records}, nil
}

func (p *parser) fill() error {
	p.batch.Reset()
	for _, record := range p.records {
		if err := p.decoder.Into(p.batch, record, input.Position{}); err != nil {
			return err
		}
	}
	return nil
}

func parseRate(format input.Format, records [][]byte) (bench.Rate, error) {
	p, err := newParser(format, records)
	if err != nil {
		return nil, err
	}
	return samplesRate(func() (int, error) {
		err := p.fill()
		return p.batch.Len(), err
	}), nil
}

// jsonRate is that of what a program without a type for its records does.
func jsonRate(records [][]byte) bench.Rate {
	return samplesRate(func() (int, error) {
		for _, record := range records {
			var fields map[string]any
			if err := json.Unmarshal(record, &fields); err != nil {
				return 0, err
			}
		}
		return len(records), nil
	})
}

// samplesRate is how many samples a second work takes, which says how many it took.
func samplesRate(work func() (int, error)) bench.Rate {
	return func(ctx context.Context) (float64, error) {
		total, began := 0, time.Now()
		for {
			n, err := work()
			if err != nil {
				return 0, err
			}
			total += n
			if took := time.Since(began); took >= bench.PassTime {
				return float64(total) / took.Seconds(), ctx.Err()
			}
		}
	}
}

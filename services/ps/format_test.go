package ps

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// What followers get is what serving would have kept of the whole rows, byte by byte; and
// rows of several formats, zeros that a bit cannot say, and numbers beyond halves come
// whole.
func TestDeltasCarryWhatServingKeeps(t *testing.T) {
	sgd := &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	zeros := &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}
	parts := func(c ...*model.Compressor) func(*model.Table) {
		return func(t *model.Table) {
			t.Optimizer, t.Initializer, t.Segments = nil, nil, nil
			for _, c := range c {
				t.Segments = append(t.Segments, &model.Segment{Dim: 1, Optimizer: sgd, Initializer: zeros, Compressor: c})
			}
		}
	}
	for name, tc := range map[string]struct {
		declare  func(*model.Table)
		grad     float32
		encoding delta.Encoding
		scale    float32
	}{
		"whole":                   {func(*model.Table) {}, .37, delta.Encoding_FP32, 0},
		"halves":                  {func(t *model.Table) { t.Compressor = pstest.Halves() }, .37, delta.Encoding_FP16, 0},
		"halves that overflow":    {func(t *model.Table) { t.Compressor = pstest.Halves() }, 70000, delta.Encoding_FP32, 0},
		"bytes":                   {func(t *model.Table) { t.Compressor = pstest.Bytes(3) }, .37, delta.Encoding_INT8, 3. / 128},
		"bits":                    {func(t *model.Table) { t.Compressor = pstest.Bits() }, .37, delta.Encoding_BITS, .3},
		"bits, zeros are skipped": {func(t *model.Table) { t.Compressor, t.SkipZeroEmbedding = pstest.Bits(), true }, .37, delta.Encoding_FP32, 0},
		"parts of one kind":       {parts(pstest.Bytes(2), pstest.Bytes(2)), .37, delta.Encoding_INT8, 2. / 128},
		"parts of two ranges":     {parts(pstest.Bytes(2), pstest.Bytes(4)), .37, delta.Encoding_FP32, 0},
		"parts of two kinds":      {parts(pstest.Halves(), nil), .37, delta.Encoding_FP32, 0},
		"bytes and bits":          {parts(pstest.Bytes(2), pstest.Bits()), .37, delta.Encoding_FP32, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var spec *model.ModelSpec
			p := w.start(w.declare(func(m *model.ModelSpec) { tc.declare(m.Tables[0]); spec = m }))
			p.teach(pstest.Teach(0, 0, 0, 10, tc.grad, 1, 1, 2))
			p.teach(pstest.Teach(0, 0, 10, 20, -3*tc.grad, 2))
			f, truth := p.settled(), p.table("user")
			n := 0
			for _, m := range f.seen {
				for _, r := range decoded(t, m).GetRows() {
					if r.GetEncoding() != tc.encoding || r.GetScale() != tc.scale {
						t.Errorf("rows came as %v times %v, want %v times %v", r.GetEncoding(), r.GetScale(), tc.encoding, tc.scale)
					}
					n += len(r.GetIds())
				}
			}
			if n < 2 || len(truth) != 2 {
				t.Errorf("%d rows came, the shard holds %v", n, truth)
			}
			for id, row := range truth {
				got := f.rows["user"][id]
				if tc.encoding == delta.Encoding_FP32 {
					if !slices.Equal(got, row) {
						t.Errorf("row %d came as %v, it is %v", id, got, row)
					}
					continue
				}
				declared, err := modelspec.TableConfig(spec, "user", false)
				if err != nil {
					t.Fatal(err)
				}
				c := declared.Segments[0].Compressor // of all segments, or rows come whole
				direct, through := make([]byte, c.Size(2)), make([]byte, c.Size(2))
				c.Encode(direct, row)
				c.Encode(through, got)
				if !slices.Equal(direct, through) {
					t.Errorf("row %d is %v, kept as % x, and as % x from %v, which came", id, row, direct, through, got)
				}
			}
		})
	}
}

// A lookup in training answers what quantization makes of a row; a follower gets the row.
func TestVeiledRowsArePublishedAsTheyAre(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.declare(func(m *model.ModelSpec) {
		m.Tables[0].Compressor = pstest.Bits()
		m.Tables[0].SkipZeroEmbedding = true
	}))
	p.teach(pstest.Teach(0, 0, 0, 1, .5, 1))
	r, err := p.Lookup(soon(t), &rowwire.LookupRequest{Model: job, Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	bit, err := compress.NewOneBit(200, 1, 10000, .3)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]float32, 2)
	bit.Look(seen, p.table("user")[1], 1)
	if got := p.settled().rows["user"][1]; !slices.Equal(r.Values[0], seen) || slices.Equal(got, seen) || !slices.Equal(got, p.table("user")[1]) {
		t.Errorf("training sees %v, want %v; followers got %v", r.Values[0], seen, got)
	}
}

// What training sees of bits depends on the global step alone, whether the newest applies
// touched the table or not, and whether the process began before them or after.
func TestTheScaleOfBitsOutlivesARestart(t *testing.T) {
	w := newWorld(t)
	cfg := w.declare(func(m *model.ModelSpec) {
		m.Tables[0].Compressor = pstest.Bits()
		m.Tables[0].Compressor.GetOneBit().StepSize = proto.Uint64(10)
	})
	p := w.start(cfg)
	p.teach(pstest.Teach(0, 0, 0, 1, .5, 1))
	const applies = 300
	for at := int64(1); at < applies; at++ {
		p.teach(pstest.Teach(0, 0, at, at+1, 0)) // nothing for any table
	}
	bit, err := compress.NewOneBit(10, 1, 10000, .3)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]float32, 2)
	bit.Look(want, p.table("user")[1], applies-1)
	if got := p.user(1); !slices.Equal(got, want) {
		t.Errorf("training sees %v, want %v", got, want)
	}
	w.save(w.checkpoint(1, 1, 0))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if got := w.start(cfg).user(1); !slices.Equal(got, want) {
		t.Errorf("after a restart training sees %v, want %v", got, want)
	}
}

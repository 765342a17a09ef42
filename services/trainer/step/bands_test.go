package step

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// However many shards there are, each is told of its own bands, in parts that a message holds,
// and all of them together of every gradient once.
func TestAStepGoesInParts(t *testing.T) {
	for _, shards := range []int{1, 2, 3} {
		e, err := New(trainertest.WideSpec(), shards, 8)
		if err != nil {
			t.Fatal(err)
		}
		s := learnt(t, e)
		told := make([][]float32, len(e.Variables()))
		for i, v := range e.Variables() {
			told[i] = make([]float32, v.Size)
		}
		for range 2 { // the second time in the memory of the first
			numbers, rows := 0, 0
			for shard := range shards {
				parts := s.Tells(shard, rowwire.ApplyRequest{Job: "j", From: 5, To: 9})
				if shards == 1 && len(parts) != 2 {
					t.Fatalf("9 MB are told in %d parts", len(parts))
				}
				for i, p := range parts {
					if p.Job != "j" || p.From != 5 || p.To != 9 || len(parts) > 1 && (int(p.Part) != i || int(p.Parts) != len(parts)) || len(parts) == 1 && p.Parts != 0 {
						t.Errorf("part %d of %d is %d of %d", i, len(parts), p.Part, p.Parts)
					}
					size := 0
					for _, b := range p.Tables {
						rows += len(b.IDs)
						size += 8*len(b.IDs) + 4*len(b.Grads)
					}
					for _, d := range p.Dense {
						i := slices.IndexFunc(e.Variables(), func(v modelspec.Variable) bool { return v.Name == d.Name })
						copy(told[i][d.At:], d.Values)
						numbers += len(d.Values)
						size += 4 * len(d.Values)
					}
					if size > modelspec.MaxStepBytes {
						t.Errorf("a part has %d bytes", size)
					}
				}
			}
			want := 0
			for i := range told {
				want += len(told[i])
				if !slices.Equal(told[i], s.Batch.Dense[i]) {
					t.Errorf("%d shards are told other gradients of %s", shards, e.Variables()[i].Name)
				}
			}
			if numbers != want || rows != 2 {
				t.Errorf("%d shards are told %d gradients of %d, and %d rows of 2", shards, numbers, want, rows)
			}
		}
	}
}

// Variables that only products of bfloat16 read come rounded, and a step computes the same bits.
func TestRoundedVariablesComputeTheSame(t *testing.T) {
	spec := trainertest.SmallSpec()
	spec.Compute = model.ModelSpec_BF16
	e, err := New(spec, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(e.Rounded, true) || !slices.Contains(e.Rounded, false) {
		t.Fatalf("rounded are %v", e.Rounded)
	}
	var whole, rounded [][]float32
	for i, v := range e.Variables() {
		values := modelspec.InitVariable(spec, v)
		whole = append(whole, values)
		if e.Rounded[i] {
			values = slices.Clone(values)
			for j, x := range values {
				b := math.Float32bits(x)
				values[j] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
			}
		}
		rounded = append(rounded, values)
	}
	if slices.EqualFunc(whole, rounded, slices.Equal[[]float32]) {
		t.Fatal("nothing was rounded")
	}
	s := learnt(t, e)
	var dense, rows [][]float32
	for i, values := range [][][]float32{whole, rounded} {
		w, err := e.Weights(uint64(i+1), values)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Train(&runtime.Lane{}, w); err != nil {
			t.Fatal(err)
		}
		var d, r [][]float32
		for _, g := range s.Batch.Dense {
			d = append(d, slices.Clone(g))
		}
		for _, b := range s.Batch.Blocks(0) {
			r = append(r, slices.Clone(b.Grads))
		}
		if i == 0 {
			dense, rows = d, r
		} else if !slices.EqualFunc(d, dense, slices.Equal[[]float32]) || !slices.EqualFunc(r, rows, slices.Equal[[]float32]) {
			t.Error("rounded variables give other gradients")
		}
	}
}

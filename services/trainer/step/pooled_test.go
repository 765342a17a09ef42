package step

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// drawing is an engine of a model whose samples have negatives, and reads batches of them.
func drawing(t *testing.T, n *model.SampleRule_Negatives) *Engine {
	t.Helper()
	spec := trainertest.SmallSpec()
	n.Item = []string{"movie"}
	spec.SampleRules = []*model.SampleRule{{Name: "others", Action: &model.SampleRule_Negatives_{Negatives: n}}}
	e, err := New(spec, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	if e.Input.Format, err = input.ParseFormat("example-batch"); err != nil {
		t.Fatal(err)
	}
	return e
}

// several is a record of n samples, of as many movies.
func several(t *testing.T, offset, n int64) kafka.Record {
	t.Helper()
	b := &matrixpb.ExampleBatch{BatchSize: int32(n)}
	for _, name := range []string{"userId", "movieId", "rating"} {
		l := &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_INDIVIDUAL}
		for i := range n {
			l.Feature = append(l.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_Int64List{Int64List: &matrixpb.Int64List{Value: []int64{1 + i%5}}}})
		}
		b.NamedFeatureList = append(b.NamedFeatureList, l)
	}
	data, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return kafka.Record{Partition: 3, Offset: offset, Value: data}
}

// A span that is learnt in parts has its records put into the pool once, however many parts there are.
func TestRecordsBehindAFullBatchAreRememberedOnce(t *testing.T) {
	e := drawing(t, &model.SampleRule_Negatives{Count: 1, Start: proto.Uint32(99_999)})
	again := func(records int64) float64 {
		s := e.NewStep()
		s.Draw(input.NewPool())
		var recs []kafka.Record
		for i := range records {
			recs = append(recs, several(t, i, 2000))
		}
		return testing.AllocsPerRun(1, func() { // once more than it counts
			if err := s.Load(Span{Recs: recs}); err != nil || !errors.Is(s.Unfit, ErrTooLarge) {
				t.Fatal(err, s.Unfit)
			}
		})
	}
	if few, many := again(6), again(20); many > few+1000 {
		t.Errorf("a span of 20 records of which few fit takes %g allocations, one of 6 %g", many, few)
	}
}

package step

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/services/trainer/internal/trainertest"
)

// drawing is an engine of a model whose samples have negatives, and reads batches of them.
func drawing(t *testing.T, n *model.SampleRule_Negatives) *Engine {
	t.Helper()
	spec := trainertest.SmallSpec()
	spec.Features = append(spec.Features, &model.Feature{Name: "taste", Slot: 4, Table: "movie", Cross: []string{"user", "movie"}})
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

// several is a record of n samples, of five movies that others do not have.
func several(t *testing.T, offset, n int64) kafka.Record { return listing(t, offset, n, 1, 1) }

// listing is a record of n samples, of so many users and movies each.
func listing(t *testing.T, offset, n, users, movies int64) kafka.Record {
	t.Helper()
	b := &matrixpb.ExampleBatch{BatchSize: int32(n)}
	for name, ids := range map[string]int64{"userId": users, "movieId": movies, "rating": 1} {
		l := &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_INDIVIDUAL}
		for i := range n {
			list := &matrixpb.Int64List{}
			for k := range ids {
				list.Value = append(list.Value, 1+5*offset%100+i%5+1000*k)
			}
			l.Feature = append(l.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_Int64List{Int64List: list}})
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
		s.Draw(itempool.New())
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

// What a record draws follows from the records before it alone: not from the time at which they were read, nor from the room
// that there was.
func TestThePoolFollowsFromRecords(t *testing.T) {
	e := drawing(t, &model.SampleRule_Negatives{Count: 1, Start: proto.Uint32(0)})
	now := time.Unix(1000, 0)
	e.Latest = func() time.Time { return now }
	late := several(t, 1, 5)
	late.Time = now.Add(time.Second)
	large := several(t, 1, int64(e.Samples())*2/3) // which fits without its negatives
	broken := kafka.Record{Partition: 3, Offset: 1, Value: []byte("broken")}
	for name, before := range map[string][]kafka.Record{
		"a record from the future": {several(t, 0, 5), late}, "a record that is too large": {several(t, 0, 5), large}, "no record": {several(t, 0, 5), broken},
		"a record whose negative is refused": {listing(t, 0, 1, 1, 50), listing(t, 1, 1, 100, 1)}, // as it crosses too many
	} {
		drawn := func(at time.Time, read func(*Step)) (movies []int64) {
			t.Helper()
			now = at
			s := e.NewStep()
			s.Draw(itempool.New())
			read(s)
			if err := s.Load(Span{Recs: []kafka.Record{several(t, 2, 30)}}); err != nil || s.Unfit != nil || s.Samples() != 60 {
				t.Fatalf("%s: %v, %v, %d samples", name, err, s.Unfit, s.Samples())
			}
			for i := range s.Samples() {
				movies = append(movies, s.Batch.IDs(1, i)[0]&modelspec.MaxID)
			}
			return movies
		}
		load := func(recs ...kafka.Record) func(*Step) {
			return func(s *Step) {
				if err := s.Load(Span{Recs: recs}); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := drawn(time.Unix(1000, 0), func(s *Step) { s.Remember(before) })
		if within := slices.ContainsFunc(want, func(movie int64) bool { return movie > 5 && movie <= 10 }); within == (name == "no record") {
			t.Fatalf("%s: it is drawn from: %v", name, within)
		}
		for when, got := range map[string][]int64{
			"at once":      drawn(time.Unix(1000, 0), load(before...)),
			"later":        drawn(time.Unix(2000, 0), load(before...)),
			"one by one":   drawn(time.Unix(1000, 0), func(s *Step) { load(before[0])(s); load(before[1])(s) }),
			"after others": drawn(time.Unix(1000, 0), func(s *Step) { s.Remember(before[:1]); load(before[1])(s) }),
		} {
			if !slices.Equal(got, want) {
				t.Errorf("%s, read %s: %v are drawn, want %v", name, when, got, want)
			}
		}
	}
}

// Negatives leave room for as many samples of one record as a step has without them.
func TestTheLargestRecordHasNegatives(t *testing.T) {
	e := drawing(t, &model.SampleRule_Negatives{Count: 4, Start: proto.Uint32(0)})
	s := e.NewStep()
	s.Draw(itempool.New())
	s.Remember([]kafka.Record{several(t, 0, 5)})
	for n, fits := range map[int64]bool{MaxBatch: true, MaxBatch + 1: false} {
		if err := s.Load(Span{Recs: []kafka.Record{several(t, 1, n)}}); err != nil || (s.Unfit == nil) != fits || fits && s.Samples() != 5*MaxBatch {
			t.Errorf("a record of %d samples: %v, %v, %d are learnt", n, err, s.Unfit, s.Samples())
		}
	}
}

package input

import (
	"fmt"
	"math/rand/v2"
	"testing"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"

	"github.com/go-faster/city"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

// richSpec reads all there is: lists, hashes, feature ids, defaults, floats, weights and masks, beside a
// crossed feature that no record has.
func richSpec() *model.ModelSpec {
	return &model.ModelSpec{
		Features: []*model.Feature{
			{Name: "userId", Field: "userId", Slot: 1},
			{Name: "genres", Field: "genres", Slot: 3, Missing: model.Feature_EMPTY, Ids: model.Feature_HASH},
			{Name: "taste", Slot: 4, Cross: []string{"userId", "genres"}},
			{Name: "ad", Field: "ad", Slot: 5, Missing: model.Feature_DEFAULT, DefaultIds: []uint64{7, 8}, Ids: model.Feature_FID},
			{Name: "history", Field: "movieId", Slot: 2},
		},
		Floats: []*model.Float{
			{Name: "age", Field: "age", Missing: model.Feature_DEFAULT, Default: 30},
			{Name: "vec", Field: "vec", Dim: 3, Missing: model.Feature_EMPTY},
		},
		Tasks: []*model.Task{
			{Name: "like", Label: &model.Label{Field: "rating", Threshold: 3.5}, WeightField: "w", MaskField: "seen"},
			{Name: "stars", Label: &model.Label{Field: "stars", Raw: true}, Loss: model.Task_MSE, MaskField: "seen"},
		},
	}
}

func richRecords() (all []string) {
	for _, field := range []string{
		`"x":1`, `"genres":["Drama","War",7,"\u0041"]`, `"genres":"Drama"`, `"genres":7`, `"genres":-7`, `"genres":1.5`, `"genres":[true]`, `"genres":{}`, `"genres":[null]`, `"genres":[[1]]`, `"genres":["",""]`, `"genres": [ ]`, `"genres":null`,
		`"genres": [ 1 , "b" ,3 ] `, `"genres":["a",]`, `"genres":[`, `"genres":[1 2]`,
		`"ad":1407374883553288`, `"ad":[1407374883553289,"1407374883553290"]`, `"ad":[1407374883553289,7]`, `"ad":-1`, `"ad":9223372036854775807`, `"ad":9223372036854775808`, `"ad":[]`,
		`"age":41.5`, `"age":"41.5"`, `"age":[41]`, `"age":[1,2]`, `"age":1e39`, `"age":3.4028235e38`, `"age":3.4028236e38`, `"age":null`, `"age":"NaN"`, `"age":true`,
		`"vec":[1,2,3]`, `"vec":[1,"2",-3e-3]`, `"vec":[1,2]`, `"vec":[1,2,3,4]`, `"vec":1`, `"vec":[1,null,3]`, `"vec":[1,[2],3]`, `"vec":[]`,
		`"w":0.5`, `"w":0`, `"w":-1`, `"w":"2"`, `"w":[1]`, `"w":[]`, `"w":null`, `"w":1e300`, `"w":"inf"`, `"seen":0`, `"seen":1`, `"seen":2`, `"seen":0,"w":7`, `"timestamp":[1]`, `"timestamp":[]`,
	} {
		all = append(all, fmt.Sprintf(`{"userId":1,"movieId":[2,3,"4"],"rating":4,"stars":2.5,%s}`, field), fmt.Sprintf(`{"userId":[1,2],%s,"movieId":2,"stars":-7,"rating":1}`, field), fmt.Sprintf(`{"userId":[1],"movieId":2,%s}`, field))
	}
	return append(all, `{"userId":[],"movieId":2,"rating":4,"stars":2}`, `{"userId":[null],"movieId":2,"rating":4,"stars":2}`, `{"userId":1,"movieId":2,"rating":[4],"stars":2}`, `{"userId":1,"movieId":2,"rating":4,"stars":1e39}`,
		`{"userId":1,"movieId":2,"rating":4,"stars":[]}`, `{"userId":1,"movieId":2,"rating":[],"stars":3,"seen":0}`)
}

func richExamples(t testing.TB) (all [][]byte) {
	for name, lists := range map[string][]*tf.Feature{
		"x":      {ints(1)},
		"genres": {texts("Drama", "War", "\xff", ""), ints(1, -2), floats(1), texts(), {}},
		"ad":     {ints(1407374883553288, 1407374883553289), ints(7), ints(-1), texts("1407374883553288"), ints()},
		"age":    {floats(1), ints(1), texts("1.5"), floats(1, 2), floats(), texts("x")},
		"vec":    {floats(1, 2, 3), ints(1, 2, 3), texts("1", "2", "3"), floats(1), floats(1, 2, 3, 4), floats()},
		"w":      {floats(0.5), floats(0), floats(-1), ints(2), texts("3"), floats(), floats(1, 2)},
		"seen":   {ints(0), ints(1), ints(2), floats(0)},
		"userId": {ints(1, 2, 3), texts("1", "2"), ints()},
	} {
		for _, f := range lists {
			for _, labelled := range []bool{true, false} {
				features := map[string]*tf.Feature{"userId": ints(1), "movieId": ints(2, 3, 4)}
				if labelled {
					features["rating"], features["stars"] = floats(4), floats(2.5)
				}
				features[name] = f
				all = append(all, example(t, features))
			}
		}
	}
	return all
}

// Hashes stand in checkpoints: CityHash64 never changes. The first is of the authors' own test data.
func TestHashes(t *testing.T) {
	for text, want := range map[string]uint64{"": 0x9ae16a3b2f90404f, "Drama": 0x4098c68efafaac70} {
		if got := city.Hash64([]byte(text)); got != want {
			t.Errorf("the hash of %q is %#x, want %#x", text, got, want)
		}
	}
}

// For a prediction a record needs no label, and its weights say nothing.
func TestServingReadsNoLabels(t *testing.T) {
	for format, record := range map[Format][]byte{
		JSON:    []byte(`{"userId":1,"movieId":[2,3],"w":-1,"seen":"x","rating":[]}`),
		Example: example(t, map[string]*tf.Feature{"userId": ints(1), "movieId": ints(2, 3), "w": floats(-1)}),
	} {
		s, err := New(richSpec(), Options{Format: format, Serving: true}).Decode(record)
		if err != nil || len(s.IDs[4]) != 2 || s.Labels[0] != 0 || s.Labels[1] != 0 || s.Weights[0] != 1 {
			t.Errorf("%v: %+v, %v", format, s, err)
		}
		if _, err := New(richSpec(), Options{Format: format}).Decode(record); err == nil {
			t.Errorf("%v: it is learnt", format)
		}
	}
	e := monolithEngine(t)
	b := e.NewBatch()
	rng := rand.New(rand.NewPCG(1, 9))
	s := sample{user: []uint64{layouttest.MakeV1(1, 7)}, line: &idlpb.LineId{}}
	for format, record := range map[Format][]byte{MonolithExample: s.example(t, rng), Instance: s.instance(t, rng), ExampleBatch: batchOf(t, rng, []sample{s, s})} {
		b.Reset()
		if err := New(e.Spec(), Options{Format: format, Serving: true}).Into(b, record, Position{}); err != nil || b.Len() == 0 {
			t.Errorf("%v: %d samples, %v", format, b.Len(), err)
		}
	}
}

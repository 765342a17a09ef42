package entry

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
)

// example is a serialized tf.train.Example of a user and a movie.
func example(t *testing.T, user, movie int64) []byte {
	t.Helper()
	of := func(id int64) *example_protos_go_proto.Feature {
		return &example_protos_go_proto.Feature{Kind: &example_protos_go_proto.Feature_Int64List{Int64List: &example_protos_go_proto.Int64List{Value: []int64{id}}}}
	}
	b, err := proto.Marshal(&example_protos_go_proto.Example{Features: &example_protos_go_proto.Features{Feature: map[string]*example_protos_go_proto.Feature{"userId": of(user), "movieId": of(movie)}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// exampleBatch is a serialized ExampleBatch of so many rows.
func exampleBatch(t *testing.T, rows int64) []byte {
	t.Helper()
	b := &matrixpb.ExampleBatch{BatchSize: int32(rows)}
	for _, name := range []string{"userId", "movieId"} {
		l := &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_INDIVIDUAL}
		for i := range rows {
			l.Feature = append(l.Feature, &matrixpb.Feature{Type: &matrixpb.Feature_Int64List{Int64List: &matrixpb.Int64List{Value: []int64{i + 1}}}})
		}
		b.NamedFeatureList = append(b.NamedFeatureList, l)
	}
	data, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Records stand for all inputs: as a list, or as a tensor of one dimension, or of none where one record holds a
// batch. What cannot be read is refused with the place of it.
func TestRecordsInsteadOfInputs(t *testing.T) {
	m := newEntry(t)
	one, two := string(example(t, 1, 2)), string(example(t, 3, 4))
	scalar := func(text string) *tfserving.TensorProto {
		s := texts(text)
		s.TensorShape.Dim = nil
		return s
	}
	for name, tc := range map[string]struct {
		in   Input
		rows int
		says string
	}{
		"a list":                  {Input{Examples: [][]byte{[]byte(one), []byte(two)}}, 2, ""},
		"a list of none":          {Input{Examples: [][]byte{}}, 0, "the batch is empty"},
		"a list of too many":      {Input{Examples: [][]byte{[]byte(one), []byte(two), []byte(one)}}, 0, `input "examples" has more than 2 rows`},
		"what is none":            {Input{Examples: [][]byte{[]byte(one), []byte("\xff")}}, 0, `input "examples", row 1:`},
		"a tensor":                {Input{Tensors: tensors{"examples": texts(one, two)}}, 2, ""},
		"an empty tensor":         {Input{Tensors: tensors{"examples": texts()}}, 0, "the batch is empty"},
		"a tensor of too many":    {Input{Tensors: tensors{"examples": texts(one, two, one)}}, 0, "want one serialized tf.train.Example for each row"},
		"a tensor of numbers":     {Input{Tensors: tensors{"examples": ints(1)}}, 0, "want one serialized tf.train.Example for each row"},
		"one Example as a scalar": {Input{Tensors: tensors{"examples": scalar(one)}}, 0, `input "examples" has 0 dimensions`},
		"a batch as a scalar":     {Input{Tensors: tensors{"example_batch": scalar(string(exampleBatch(t, 2)))}}, 2, ""},
		"batches":                 {Input{Tensors: tensors{"example_batch": texts(string(exampleBatch(t, 1)), string(exampleBatch(t, 1)))}}, 2, ""},
		"a batch of too many":     {Input{Tensors: tensors{"example_batch": texts(string(exampleBatch(t, 3)))}}, 0, `input "example_batch" has more than 2 rows`},
	} {
		sc := m.scratches.New().(*scratch)
		for range 2 { // once on fresh memory, once on used
			err := sc.load(m, tc.in, 2)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || err == nil && sc.batch.Len() != tc.rows {
				t.Errorf("%s: %d rows, %v; want %d, %q", name, sc.batch.Len(), err, tc.rows, tc.says)
			}
		}
	}
}

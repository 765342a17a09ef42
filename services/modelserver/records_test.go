package modelserver_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"
)

func marshalled(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// instance is a row as Monolith's oldest records have it, by named features.
func instance(t *testing.T, r viewing) string {
	t.Helper()
	return marshalled(t, &idlpb.Instance{Feature: []*idlpb.Feature{
		{Name: proto.String("user"), Int64Value: []int64{r.user}}, {Name: proto.String("history"), Int64Value: r.history}, {Name: proto.String("movie"), Int64Value: []int64{r.movie}},
		{Name: proto.String("country"), BytesValue: [][]byte{[]byte(r.country)}}, {Name: proto.String("age"), FloatValue: []float32{r.age}}, {Name: proto.String("vec"), FloatValue: r.vec},
	}})
}

// exampleBatch is rows by column, as Monolith has them.
func exampleBatch(t *testing.T, rows ...viewing) string {
	t.Helper()
	list := func(name string, of func(viewing) *matrixpb.Feature) *matrixpb.NamedFeatureList {
		l := &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_INDIVIDUAL}
		for _, r := range rows {
			l.Feature = append(l.Feature, of(r))
		}
		return l
	}
	ints := func(v ...int64) *matrixpb.Feature {
		return &matrixpb.Feature{Type: &matrixpb.Feature_Int64List{Int64List: &matrixpb.Int64List{Value: v}}}
	}
	numbers := func(v ...float32) *matrixpb.Feature {
		return &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: v}}}
	}
	return marshalled(t, &matrixpb.ExampleBatch{BatchSize: int32(len(rows)), NamedFeatureList: []*matrixpb.NamedFeatureList{
		list("user", func(r viewing) *matrixpb.Feature { return ints(r.user) }),
		list("history", func(r viewing) *matrixpb.Feature { return ints(r.history...) }),
		list("movie", func(r viewing) *matrixpb.Feature { return ints(r.movie) }),
		list("country", func(r viewing) *matrixpb.Feature {
			return &matrixpb.Feature{Type: &matrixpb.Feature_BytesList{BytesList: &matrixpb.BytesList{Value: [][]byte{[]byte(r.country)}}}}
		}),
		list("age", func(r viewing) *matrixpb.Feature { return numbers(r.age) }),
		list("vec", func(r viewing) *matrixpb.Feature { return numbers(r.vec...) }),
	}})
}

// Monolith's records are answered as the tensors of the same rows are.
func TestMonolithRecords(t *testing.T) {
	w := newWorld(t)
	w.listed()
	w.export(1, 2, 0)
	s, subs := w.one(2, func(c *modelserver.Config) { c.MaxBatch = 4 })
	s.mustLoad(1, subs...)
	rows := []viewing{
		{1, []int64{3, 4, 3}, 5, "fr", 0.5, []float32{1, -1}}, {2, nil, 6, "de", 40, []float32{0.25, 3}}, {1, []int64{9}, 7, "nowhere", -1, []float32{0, 0}},
	}
	want := w.answers(rows)
	wait.Until(t, "the first answer", func() error { _, err := s.ask(tensors(rows)); return err })
	scalar := strings64(exampleBatch(t, rows...))
	scalar.TensorShape.Dim = nil
	for what, inputs := range map[string]map[string]*tfserving.TensorProto{
		"instances":            {"instances": strings64(instance(t, rows[0]), instance(t, rows[1]), instance(t, rows[2]))},
		"a batch":              {"example_batch": strings64(exampleBatch(t, rows...))},
		"a batch as a scalar":  {"example_batch": scalar},
		"batches of some each": {"example_batch": strings64(exampleBatch(t, rows[:2]...), exampleBatch(t, rows[2]))},
	} {
		got, err := s.ask(inputs)
		if err == nil {
			err = same(got, want)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	b64 := func(record string) string { return base64.StdEncoding.EncodeToString([]byte(record)) }
	restGives(t, s, want, "REST instances", fmt.Sprintf(`{"instances":[{"instances":{"b64":%q}},{"instances":{"b64":%q}},{"instances":{"b64":%q}}]}`,
		b64(instance(t, rows[0])), b64(instance(t, rows[1])), b64(instance(t, rows[2]))), "predictions")
	restGives(t, s, want, "a REST batch", fmt.Sprintf(`{"inputs":{"example_batch":{"b64":%q}}}`, b64(exampleBatch(t, rows...))), "outputs")

	flat := strings64(instance(t, rows[0]))
	flat.TensorShape.Dim = append(flat.TensorShape.Dim, flat.TensorShape.Dim...)
	for what, tc := range map[string]struct {
		inputs map[string]*tfserving.TensorProto
		says   string
	}{
		"no Instance":     {map[string]*tfserving.TensorProto{"instances": strings64("\xff")}, `input "instances", row 0`},
		"no batch":        {map[string]*tfserving.TensorProto{"example_batch": strings64("\xff")}, `input "example_batch", row 0: the record is no ExampleBatch`},
		"an empty batch":  {map[string]*tfserving.TensorProto{"example_batch": strings64(marshalled(t, &matrixpb.ExampleBatch{DataSourceKey: 1}))}, "the batch is empty"},
		"too many rows":   {map[string]*tfserving.TensorProto{"example_batch": strings64(exampleBatch(t, rows...), exampleBatch(t, rows...))}, "more than 4 rows; send a smaller batch"},
		"two dimensions":  {map[string]*tfserving.TensorProto{"instances": flat}, "one serialized Monolith Instance for each row"},
		"numbers":         {map[string]*tfserving.TensorProto{"instances": tfserving.NewInt64([]int64{1})}, "one serialized Monolith Instance for each row"},
		"beside a tensor": {map[string]*tfserving.TensorProto{"instances": strings64(instance(t, rows[0])), "user": tfserving.NewInt64([]int64{1})}, "send it alone"},
	} {
		if _, err := s.ask(tc.inputs); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want INVALID_ARGUMENT saying %q", what, err, tc.says)
		}
	}
}

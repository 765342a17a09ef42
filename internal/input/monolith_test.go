package input

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input/framing"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/kernels/layout"
	"github.com/monolith-go/monolith/kernels/layout/layouttest"
)

// monolithSpec is richSpec over fields that Monolith's messages have.
func monolithSpec() *model.ModelSpec {
	spec := richSpec()
	ready := modelspec.MovieRanking()
	spec.Name, spec.DenseOptimizer = "m", ready.DenseOptimizer
	spec.Features[0].Field, spec.Features[0].Ids = "fc_slot_1", model.Feature_FID
	spec.Features[4].Field, spec.Features[4].Missing = "movies", model.Feature_EMPTY
	for i, f := range spec.Features {
		f.Table = fmt.Sprint("t", i)
		spec.Tables = append(spec.Tables, &model.Table{Name: f.Table, Dim: 1, Optimizer: ready.DenseOptimizer, Initializer: ready.Tables[0].Initializer})
	}
	spec.Outputs = []*model.Output{{Name: "x", Slices: []string{"*"}}}
	spec.Layers = []*model.DenseLayer{{Name: "like", Units: 1, Inputs: []string{"x", "age", "vec"}}, {Name: "stars", Units: 1, Inputs: []string{"x"}}}
	for i, t := range spec.Tasks {
		t.Logit, t.MaskField = t.Name, "__LINE_ID__.rank"
		t.Label.Field = fmt.Sprintf("__LABEL__.%d", i)
	}
	spec.Tasks[0].WeightField = "instance_weight"
	return spec
}

func monolithEngine(t testing.TB) *runtime.Engine {
	t.Helper()
	e, err := runtime.New(monolithSpec(), 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sample is one, in the words of all formats.
type sample struct {
	user   []uint64 // of version 1
	ad     []uint64 // of version 2
	genres [][]byte
	movies []int64
	age    []float32
	vec    []float32
	labels []float32
	weight float32
	line   *idlpb.LineId
}

func drawSample(rng *rand.Rand) (s sample) {
	odd := func() bool { return rng.IntN(40) == 0 }
	for range rng.IntN(3) {
		s.user = append(s.user, layouttest.MakeV1(1, rng.Uint64N(1<<48)))
	}
	if odd() {
		s.user = nil
	}
	for range rng.IntN(3) {
		s.ad = append(s.ad, layouttest.MakeV2(5, rng.Uint64N(100)))
	}
	if odd() {
		s.ad = append(s.ad, layouttest.MakeV2(6, 1), 1<<63|5<<48)
	}
	for range rng.IntN(3) {
		s.genres = append(s.genres, []byte(fmt.Sprint("genre ", rng.IntN(9))))
	}
	for range rng.IntN(3) {
		s.movies = append(s.movies, rng.Int64N(9))
	}
	if odd() {
		s.movies = append(s.movies, -1)
	}
	if rng.IntN(2) == 0 {
		s.age = []float32{rng.Float32()}
	}
	if rng.IntN(2) == 0 {
		s.vec = []float32{1, rng.Float32(), -3}
	}
	if odd() {
		s.vec = []float32{1}
	}
	s.labels = []float32{5 * rng.Float32(), -rng.Float32()}
	if odd() {
		s.labels = s.labels[:1]
	}
	s.weight = float32(rng.IntN(3))
	s.line = &idlpb.LineId{}
	if rng.IntN(2) == 0 {
		s.line.ReqTime, s.line.Rank, s.line.Uid, s.line.Actions = proto.Int64(rng.Int64N(1<<32)), proto.Int32(int32(rng.IntN(2))), proto.Uint64(7), []int32{1, 2}
	}
	if odd() {
		s.line.ReqTime = proto.Int64(-1)
	}
	return s
}

// text is the sample as JSON has it, for the reference; of a batch a weight of 0 is what it says.
func (s *sample) text(t testing.TB) []byte {
	fields := map[string]any{"ad": s.ad, "movies": s.movies, "age": s.age, "vec": s.vec}
	var user []uint64
	for _, id := range s.user {
		user = append(user, layout.V2FromV1(id))
	}
	var genres []string
	for _, g := range s.genres {
		genres = append(genres, string(g))
	}
	fields["fc_slot_1"], fields["genres"] = user, genres
	for i, l := range s.labels {
		fields[fmt.Sprintf("__LABEL__.%d", i)] = l
	}
	if s.weight > 0 {
		fields["instance_weight"] = s.weight
	}
	if s.line.Rank != nil {
		fields["__LINE_ID__.rank"] = s.line.GetRank()
	}
	if s.line.ReqTime != nil {
		fields["__LINE_ID__.req_time"] = s.line.GetReqTime()
	}
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fids1(v []uint64) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FidV1List{FidV1List: &matrixpb.FidList{Value: v}}}
}

func fids2(v []uint64) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: v}}}
}

func monolithFloat32s(v []float32) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_FloatList{FloatList: &matrixpb.FloatList{Value: v}}}
}

func monolithBlobs(v ...[]byte) *matrixpb.Feature {
	return &matrixpb.Feature{Type: &matrixpb.Feature_BytesList{BytesList: &matrixpb.BytesList{Value: v}}}
}

// features are those of the sample, by name, of which every kind is one.
func (s *sample) features(rng *rand.Rand) map[string]*matrixpb.Feature {
	all := map[string]*matrixpb.Feature{
		"fc_slot_1": fids1(s.user), "ad": fids2(s.ad), "genres": monolithBlobs(s.genres...), "vec": monolithFloat32s(s.vec),
		"movies": {Type: &matrixpb.Feature_Int64List{Int64List: &matrixpb.Int64List{Value: s.movies}}}, "other": fids1(s.user),
		"nested": {Type: &matrixpb.Feature_FloatLists{FloatLists: &matrixpb.FloatLists{List: []*matrixpb.FloatList{{Value: s.vec}}}}},
	}
	if len(s.age) > 0 {
		all["age"] = &matrixpb.Feature{Type: &matrixpb.Feature_FloatValue{FloatValue: s.age[0]}}
		if rng.IntN(2) == 0 {
			all["age"] = &matrixpb.Feature{Type: &matrixpb.Feature_DoubleValue{DoubleValue: float64(s.age[0])}}
		}
	}
	if len(s.genres) == 1 && rng.IntN(2) == 0 {
		all["genres"] = &matrixpb.Feature{Type: &matrixpb.Feature_BytesValue{BytesValue: s.genres[0]}}
	}
	if len(s.movies) == 1 && rng.IntN(2) == 0 {
		all["movies"] = &matrixpb.Feature{Type: &matrixpb.Feature_Int64Value{Int64Value: s.movies[0]}}
	}
	if rng.IntN(2) == 0 {
		reals := make([]float64, len(s.vec))
		for i, v := range s.vec {
			reals[i] = float64(v)
		}
		all["vec"] = &matrixpb.Feature{Type: &matrixpb.Feature_DoubleList{DoubleList: &matrixpb.DoubleList{Value: reals}}}
	}
	return all
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *sample) example(t testing.TB, rng *rand.Rand) []byte {
	e := &matrixpb.Example{Label: s.labels, InstanceWeight: s.weight, LineId: s.line}
	for name, f := range s.features(rng) {
		e.NamedFeature = append(e.NamedFeature, &matrixpb.NamedFeature{Name: name, Feature: f})
	}
	if rng.IntN(3) == 0 { // what reserved names say counts
		e.Label = []float32{9, 9, 9}
		e.NamedFeature = append(e.NamedFeature, &matrixpb.NamedFeature{Name: "__LABEL__", Feature: monolithFloat32s(s.labels)},
			&matrixpb.NamedFeature{Name: "__LINE_ID__", Feature: monolithBlobs(encode(t, s.line))})
		e.LineId = &idlpb.LineId{ReqTime: proto.Int64(-9)}
	}
	return encode(t, e)
}

func (s *sample) instance(t testing.TB, rng *rand.Rand) []byte {
	in := &idlpb.Instance{Fid: append(slices.Clone(s.user), layouttest.MakeV1(9, 9)), Label: s.labels, InstanceWeight: &s.weight, LineId: s.line}
	rng.Shuffle(len(in.Fid), func(i, j int) {})
	in.Feature = []*idlpb.Feature{
		{Name: proto.String("ad"), Fid: s.ad}, {Name: proto.String("genres"), BytesValue: s.genres}, {Name: proto.String("movies"), Int64Value: s.movies},
		{Name: proto.String("vec"), FloatValue: s.vec}, {Name: proto.String("age"), FloatValue: s.age}, {Name: proto.String("x"), FidList: []*idlpb.Fixed64List{{Value: s.ad}}},
	}
	return encode(t, in)
}

func batchOf(t testing.TB, rng *rand.Rand, all []sample) []byte {
	b := &matrixpb.ExampleBatch{BatchSize: int32(len(all))}
	lists := map[string]*matrixpb.NamedFeatureList{}
	add := func(i int, name string, f *matrixpb.Feature) {
		if lists[name] == nil {
			lists[name] = &matrixpb.NamedFeatureList{Name: name}
			for range all {
				lists[name].Feature = append(lists[name].Feature, &matrixpb.Feature{})
			}
		}
		lists[name].Feature[i] = f
	}
	for i := range all {
		for name, f := range all[i].features(rng) {
			add(i, name, f)
		}
		add(i, "__LABEL__", monolithFloat32s(all[i].labels))
		add(i, "__LINE_ID__", monolithBlobs(encode(t, all[i].line)))
		if all[i].weight > 0 {
			add(i, "instance_weight", monolithFloat32s([]float32{all[i].weight}))
		}
	}
	for _, l := range lists {
		b.NamedFeatureList = append(b.NamedFeatureList, l)
	}
	return encode(t, b)
}

// frame puts a message into a stream.
func frame(rng *rand.Rand, kind framing.Kind, message []byte) (b []byte) {
	le := binary.LittleEndian
	switch kind {
	case framing.LagrangeX:
		b = le.AppendUint64(b, rng.Uint64())
	case framing.SortID:
		b = append(le.AppendUint64(b, 3), "abc"...)
	case framing.KafkaDump:
		if rng.IntN(2) == 0 {
			b = le.AppendUint64(le.AppendUint64(b, 0), rng.Uint64())
			b = append(le.AppendUint64(b, 2), "ab"...)
		} else {
			b = append(le.AppendUint64(b, 5), "abcde"...)
		}
		b = le.AppendUint64(b, rng.Uint64())
	}
	return append(le.AppendUint64(b, uint64(len(message))), message...)
}

// Each of Monolith's formats, in each framing, is read as the same samples in JSON are: whole or not at
// all, with the number of the sample that is refused.
func TestMonolithFormatsAreReadAsJSONIs(t *testing.T) {
	e := monolithEngine(t)
	b, spec := e.NewBatch(), e.Spec()
	o := Options{Max: 5, TimeField: "__LINE_ID__.req_time"}
	rng := rand.New(rand.NewPCG(4, 4))
	for _, name := range Formats()[2:] {
		format, err := ParseFormat(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Format = format
		d := New(spec, o)
		refusals := 0
		for range 300 {
			all, record := drawRecord(t, rng, format)
			want, refused := referenceOf(t, spec, o, all)
			mark := b.Len()
			if mark+len(all) > e.Samples() {
				b.Reset()
				mark = 0
			}
			err := d.Into(b, record, Position{})
			if (err != nil) != (refused != "") || err != nil && (len(all) > 1 || format.message() == ExampleBatch) && !strings.HasPrefix(err.Error(), refused) {
				t.Fatalf("%s: %v, want %q of %s", name, err, refused, all[0].text(t))
			}
			if err != nil {
				if refusals++; b.Len() != mark {
					t.Fatalf("%s: %d samples are left of a record that is refused", name, b.Len()-mark)
				}
				continue
			}
			if b.Len() != mark+len(want) {
				t.Fatalf("%s: %d samples, want %d", name, b.Len()-mark, len(want))
			}
			sameSamples(t, name, b, spec, mark, want)
		}
		if refusals == 0 || refusals == 300 {
			t.Errorf("%s: %d of 300 records are refused", name, refusals)
		}
	}
}

// drawRecord is a record of some samples, and these.
func drawRecord(t *testing.T, rng *rand.Rand, format Format) (all []sample, record []byte) {
	t.Helper()
	n := 1
	if format.message() == ExampleBatch || format.Framed() {
		n = 1 + rng.IntN(4)
	}
	all = make([]sample, n)
	for i := range all {
		all[i] = drawSample(rng)
	}
	if format.message() == ExampleBatch {
		if record = batchOf(t, rng, all); format.Framed() {
			record = slices.Concat(frame(rng, format.framing(), record), frame(rng, format.framing(), batchOf(t, rng, all[:1])))
			all = append(all, all[0])
		}
	} else {
		for i := range all {
			message := all[i].example(t, rng)
			if format.message() == Instance {
				message = all[i].instance(t, rng)
			}
			if format.Framed() {
				message = frame(rng, format.framing(), message)
			}
			record = append(record, message...)
		}
	}
	return all, record
}

// referenceOf reads samples one by one as JSON; refused is how the refusal of one begins.
func referenceOf(t *testing.T, spec *model.ModelSpec, o Options, all []sample) (want []runtime.Sample, refused string) {
	t.Helper()
	for i := range all {
		s, err := reference(spec, o, all[i].text(t))
		if err != nil {
			refused = fmt.Sprintf("sample %d: ", i+1)
			break
		}
		want = append(want, s)
	}
	return want, refused
}

// sameSamples compares what stands in b from mark on.
func sameSamples(t *testing.T, name string, b *runtime.Batch, spec *model.ModelSpec, mark int, want []runtime.Sample) {
	t.Helper()
	for i, s := range want {
		for f := range s.IDs {
			if spec.Features[f].Cross == nil && !slices.Equal(b.IDs(f, mark+i), s.IDs[f]) {
				t.Fatalf("%s: feature %d is %v, want %v", name, f, b.IDs(f, mark+i), s.IDs[f])
			}
		}
		for f := range s.Floats {
			if !slices.Equal(b.Floats(f, mark+i), s.Floats[f]) {
				t.Fatalf("%s: float %d is %v, want %v", name, f, b.Floats(f, mark+i), s.Floats[f])
			}
		}
		for task := range s.Labels {
			if b.Labels(task)[mark+i] != s.Labels[task] || b.Weights(task)[mark+i] != s.Weights[task] {
				t.Fatalf("%s: task %d has %v by %v, want %v by %v", name, task, b.Labels(task)[mark+i], b.Weights(task)[mark+i], s.Labels[task], s.Weights[task])
			}
		}
	}
}

// What is no record of Monolith's formats is refused, with what is wrong.
func TestMonolithRefusals(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 4))
	s := sample{user: []uint64{layouttest.MakeV1(1, 7)}, labels: []float32{1, 2}, line: &idlpb.LineId{}}
	good := s.example(t, rng)
	named := func(f ...*matrixpb.NamedFeature) []byte {
		return encode(t, &matrixpb.Example{NamedFeature: append(f, &matrixpb.NamedFeature{Name: "fc_slot_1", Feature: fids1(s.user)}), Label: s.labels})
	}
	le := binary.LittleEndian
	for _, tc := range []struct{ name, format, record, want string }{
		{"nothing", "monolith-example", "", "the record is empty"},
		{"a record cut short", "monolith-example", string(good[:len(good)-1]), "no message of the format monolith-example"},
		{"JSON", "instance", "{}", "no message of the format instance"},
		{"a stream cut short", "monolith-example+framed", string(le.AppendUint64(nil, 5)) + "abc", "message 1: it is cut short"},
		{"a stream cut in its head", "monolith-example+sort-id", string(frame(rng, framing.SortID, good)) + "abc", "message 2: it is cut short"},
		{"a sort id beyond the record", "instance+sort-id", string(le.AppendUint64(nil, 1<<63)), "it is cut short"},
		{"a poisoned size", "instance+framed", string(le.AppendUint64(nil, 0xfefefefe)), "0xfefefefe"},
		{"a feature twice", "monolith-example", string(named(&matrixpb.NamedFeature{Name: "ad"}, &matrixpb.NamedFeature{Name: "ad"})), `feature "ad": it stands there twice`},
		{"a sorted id", "monolith-example", string(named(&matrixpb.NamedFeature{Name: "ad", SortedId: 3})), `feature "ad" has sorted_id 3`},
		{"a list of lists", "monolith-example", string(named(&matrixpb.NamedFeature{Name: "vec", Feature: &matrixpb.Feature{Type: &matrixpb.Feature_FloatLists{FloatLists: &matrixpb.FloatLists{}}}})), `field "vec" is a list of lists, not a number`},
		{"ids for numbers", "monolith-example", string(named(&matrixpb.NamedFeature{Name: "movies", Feature: fids2([]uint64{2<<48 | 7})})), `feature "history" reads numbers within its slot: declare ids: FID`},
		{"another slot", "monolith-example", string(named(&matrixpb.NamedFeature{Name: "ad", Feature: fids2([]uint64{2<<48 | 7})})), `a feature id of slot 2, and feature "ad" has slot 5`},
		{"columns of another length", "example-batch", string(encode(t, &matrixpb.ExampleBatch{BatchSize: 2, NamedFeatureList: []*matrixpb.NamedFeatureList{{Name: "ad", Feature: []*matrixpb.Feature{{}}}}})), `feature "ad" has 1 elements in a batch of 2`},
		{"a negative batch", "example-batch", string(encode(t, &matrixpb.ExampleBatch{BatchSize: -2})), "batch_size is -2"},
	} {
		f, err := ParseFormat(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		b := monolithEngine(t).NewBatch()
		if err := New(monolithSpec(), Options{Format: f}).Into(b, []byte(tc.record), Position{}); err == nil || !strings.Contains(err.Error(), tc.want) || b.Len() != 0 {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A SHARED feature is every sample's.
func TestSharedFeaturesOfABatch(t *testing.T) {
	shared := func(name string, f ...*matrixpb.Feature) *matrixpb.NamedFeatureList {
		return &matrixpb.NamedFeatureList{Name: name, Type: matrixpb.FeatureListType_SHARED, Feature: f}
	}
	record := encode(t, &matrixpb.ExampleBatch{BatchSize: 3, NamedFeatureList: []*matrixpb.NamedFeatureList{
		shared("fc_slot_1", fids1([]uint64{layouttest.MakeV1(1, 7)}), fids1([]uint64{layouttest.MakeV1(1, 8)})), shared("ad"), shared("__LABEL__", monolithFloat32s([]float32{1, 2})),
	}})
	b := monolithEngine(t).NewBatch()
	if err := New(monolithSpec(), Options{Format: ExampleBatch}).Into(b, record, Position{}); err != nil || b.Len() != 3 {
		t.Fatal(err, b.Len())
	}
	for i := range 3 {
		if !slices.Equal(b.IDs(0, i), []int64{1<<48 | 7}) || len(b.IDs(3, i)) != 2 || b.Labels(1)[i] != 2 {
			t.Errorf("sample %d: %v, %v, %v", i, b.IDs(0, i), b.IDs(3, i), b.Labels(1)[i])
		}
	}
}

func FuzzMonolith(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 4))
	for range 10 {
		all := []sample{drawSample(rng), drawSample(rng)}
		f.Add(byte(0), all[0].example(f, rng))
		f.Add(byte(1), batchOf(f, rng, all))
		f.Add(byte(2), all[0].instance(f, rng))
		f.Add(byte(11), frame(rng, framing.Framed, batchOf(f, rng, all)))
		f.Add(byte(8+4), frame(rng, framing.KafkaDump, all[0].example(f, rng)))
	}
	e := monolithEngine(f)
	b, again := e.NewBatch(), e.NewBatch()
	f.Fuzz(func(t *testing.T, kind byte, record []byte) {
		names := Formats()[2:]
		format, _ := ParseFormat(names[int(kind)%len(names)])
		b.Reset()
		d := New(e.Spec(), Options{Format: format})
		err := d.Into(b, record, Position{})
		if err != nil && b.Len() != 0 {
			t.Fatalf("%d samples are left of a record that is refused: %v", b.Len(), err)
		}
		again.Reset() // its names stand where they are expected now
		if second := d.Into(again, record, Position{}); fmt.Sprint(second) != fmt.Sprint(err) {
			t.Fatalf("read twice: %v, then %v", err, second)
		}
		sameBatches(t, e, b, again)
		var whole proto.Message = &matrixpb.Example{}
		switch format {
		case ExampleBatch:
			whole = &matrixpb.ExampleBatch{}
		case Instance:
			whole = &idlpb.Instance{}
		}
		if !format.Framed() && err != nil && len(record) > 0 && proto.Unmarshal(record, whole) == nil && strings.Contains(err.Error(), "cut short") {
			t.Fatalf("protobuf reads what is refused: %v", err)
		}
	})
}

// sameBatches holds two batches of one engine to the same samples.
func sameBatches(t *testing.T, e *runtime.Engine, a, b *runtime.Batch) {
	t.Helper()
	if a.Len() != b.Len() {
		t.Fatalf("%d samples, and %d", a.Len(), b.Len())
	}
	for i := range a.Len() {
		for f := range e.Spec().GetFeatures() {
			if !slices.Equal(a.IDs(f, i), b.IDs(f, i)) {
				t.Errorf("sample %d, feature %d: %v, and %v", i, f, a.IDs(f, i), b.IDs(f, i))
			}
		}
		for f := range e.Spec().GetFloats() {
			if !slices.EqualFunc(a.Floats(f, i), b.Floats(f, i), sameBits) {
				t.Errorf("sample %d, float %d: %v, and %v", i, f, a.Floats(f, i), b.Floats(f, i))
			}
		}
		if !sameBits(a.Labels(0)[i], b.Labels(0)[i]) {
			t.Errorf("sample %d: the labels %v and %v", i, a.Labels(0)[i], b.Labels(0)[i])
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

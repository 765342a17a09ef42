package input

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

func ints(v ...int64) *tf.Feature {
	return &tf.Feature{Kind: &tf.Feature_Int64List{Int64List: &tf.Int64List{Value: v}}}
}

func floats(v ...float32) *tf.Feature {
	return &tf.Feature{Kind: &tf.Feature_FloatList{FloatList: &tf.FloatList{Value: v}}}
}

func texts(v ...string) *tf.Feature {
	var list tf.BytesList
	for _, s := range v {
		list.Value = append(list.Value, []byte(s))
	}
	return &tf.Feature{Kind: &tf.Feature_BytesList{BytesList: &list}}
}

func example(t testing.TB, features map[string]*tf.Feature) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&tf.Example{Features: &tf.Features{Feature: features}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rating is the Example of a movie rating, with one of its features as given.
func rating(t testing.TB, name string, f *tf.Feature) []byte {
	features := map[string]*tf.Feature{"userId": ints(1), "movieId": ints(2), "rating": floats(4), "timestamp": ints(964982703), "title": texts("Heat")}
	if features[name] = f; f == nil {
		delete(features, name)
	}
	return example(t, features)
}

func TestParseExample(t *testing.T) {
	for _, tc := range []struct {
		name    string
		field   string
		f       *tf.Feature
		user    int64
		label   float32
		refused string
	}{
		{"as it is", "x", ints(1, 2), 1, 1, ""},
		{"an id as text", "userId", texts("+007"), 7, 1, ""},
		{"the greatest id", "userId", ints(modelspec.MaxID), modelspec.MaxID, 1, ""},
		{"a label of int64", "rating", ints(3), 1, 0, ""},
		{"a label as text", "rating", texts("4e0"), 1, 1, ""},
		{"a label on the threshold", "rating", floats(3.5), 1, 1, ""},
		{"no time", "timestamp", nil, 1, 1, ""},
		{"no id", "userId", nil, 0, 0, `field "userId" is missing`},
		{"an empty list", "userId", ints(), 0, 0, `field "userId" is missing`},
		{"no list", "userId", &tf.Feature{}, 0, 0, `field "userId" is missing`},
		{"an empty list of text", "rating", texts(), 0, 0, `field "rating" is missing`},
		{"two labels", "rating", ints(1, 2), 0, 0, `field "rating" has 2 values, one is read`},
		{"a wrong one of three texts", "userId", texts("1", "x", "3"), 0, 0, `field "userId", value 2, is "x", not a whole number`},
		{"an id as float", "userId", floats(3), 0, 0, `field "userId" is the float 3, not a whole number`},
		{"an id as words", "userId", texts("seven"), 0, 0, `field "userId" is "seven", not a whole number`},
		{"49 bits", "userId", ints(modelspec.MaxID + 1), 0, 0, `field "userId" is 281474976710656, outside 0 to 2^48-1`},
		{"negative", "userId", ints(-1), 0, 0, `field "userId" is -1, outside 0 to 2^48-1`},
		{"a label of NaN", "rating", floats(float32(math.NaN())), 0, 0, `field "rating" is the float NaN, not a number`},
		{"a label without end", "rating", texts("inf"), 0, 0, `field "rating" is "inf", not a number`},
		{"a label beyond its range", "rating", ints(6), 0, 0, `field "rating" is 6, outside 0 to 5`},
		{"before 1970", "timestamp", ints(-5), 0, 0, `field "timestamp" is -5, not in whole seconds since 1970`},
		{"a time as float", "timestamp", floats(5), 0, 0, "not in whole seconds since 1970"},
		{"an empty time", "timestamp", ints(), 0, 0, `field "timestamp" is missing`},
	} {
		o := strict
		o.Format = Example
		s, err := New(modelspec.MovieRanking(), o).Decode(rating(t, tc.field, tc.f))
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, %v; want %q", tc.name, s, err, tc.refused)
			}
			continue
		}
		if err != nil || s.Labels[0] != tc.label || !slices.EqualFunc(s.IDs, [][]int64{{modelspec.FID(1, tc.user)}, {modelspec.FID(2, 2)}}, slices.Equal) {
			t.Errorf("%s: %v, %v", tc.name, s, err)
		}
	}
	d := New(modelspec.MovieRanking(), Options{Format: Example})
	for record, want := range map[string]string{"": "the record is empty", `{"userId":1}`: "not a tf.train.Example", "\x0a\x05": "not a tf.train.Example"} {
		if _, err := d.Decode([]byte(record)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", record, err, want)
		}
	}
}

// throughProto reads an Example as proto.Unmarshal does, and writes it as a JSON record for the
// reference; a value that JSON cannot say or that is read otherwise there makes it refuse.
func throughProto(spec *model.ModelSpec, o Options, record []byte) (runtime.Sample, error) {
	var e tf.Example
	if err := proto.Unmarshal(record, &e); err != nil {
		return runtime.Sample{}, err
	}
	if len(record) == 0 {
		return runtime.Sample{}, errEmpty
	}
	single := map[string]bool{o.TimeField: true}
	for _, t := range modelspec.Tasks(spec) {
		single[t.GetWeightField()], single[t.GetMaskField()], single[cmp.Or(t.GetLabel(), spec.GetLabel()).GetField()] = true, true, true
	}
	ids := map[string]bool{}
	for _, f := range spec.GetFeatures() {
		ids[f.GetField()] = true
	}
	fields := map[string]any{}
	for name, f := range e.GetFeatures().GetFeature() {
		var all []any
		switch k := f.GetKind().(type) {
		case *tf.Feature_BytesList:
			for _, v := range k.BytesList.GetValue() {
				if !utf8.Valid(v) && name == "genres" {
					return runtime.Sample{}, errBytes
				} else if !utf8.Valid(v) {
					v = []byte("no number") // JSON has no other bytes
				}
				all = append(all, string(v))
			}
		case *tf.Feature_FloatList:
			for _, v := range k.FloatList.GetValue() {
				text := fmt.Sprint(float64(v))
				if ids[name] || name == o.TimeField || math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					text = "true" // a float is no id, whatever it is
				}
				all = append(all, json.RawMessage(text))
			}
		case *tf.Feature_Int64List:
			for _, v := range k.Int64List.GetValue() {
				all = append(all, v)
			}
		}
		switch {
		case len(all) == 0:
			fields[name] = nil
		case len(all) == 1 && single[name]:
			fields[name] = all[0]
		default:
			fields[name] = all
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return runtime.Sample{}, err
	}
	return reference(spec, o, text)
}

// errBytes says that a field to be hashed holds what JSON cannot say.
var errBytes = errors.New("bytes that are no text")

func alikeExample(t *testing.T, d *Decoder, record []byte) {
	t.Helper()
	want, wantErr := throughProto(d.spec, d.options, record)
	got, err := d.Decode(record)
	if errors.Is(wantErr, errBytes) {
		wantErr, want, got = err, runtime.Sample{}, runtime.Sample{}
	}
	if (err == nil) != (wantErr == nil) || err == nil && !sameSample(got, want) {
		t.Errorf("%q: %v, %v; proto.Unmarshal: %v, %v", record, got, err, want, wantErr)
	}
	// Whether the bytes are an Example at all, apart from what is in it.
	if malformed := proto.Unmarshal(record, new(tf.Example)) != nil; malformed != (err != nil && strings.Contains(err.Error(), "not a tf.train.Example")) {
		t.Errorf("%q: %v; proto.Unmarshal refuses it: %v", record, err, malformed)
	}
}

// odd are Examples that no library writes and proto.Unmarshal judges.
func odd(t testing.TB) (all [][]byte) {
	field := func(num protowire.Number, parts ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), slices.Concat(parts...))
	}
	one := func(v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), v)
	}
	key, whole := func(s string) []byte { return field(1, []byte(s)) }, rating(t, "x", ints(5))
	ids, blobs, reals := func(v ...[]byte) []byte { return field(3, v...) }, func(v ...[]byte) []byte { return field(1, v...) }, func(v ...[]byte) []byte { return field(2, v...) }
	single := protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), math.Float32bits(4))
	group := func(deep int) []byte {
		var b []byte
		for range deep {
			b = protowire.AppendTag(b, 9, protowire.StartGroupType)
		}
		for range deep {
			b = protowire.AppendTag(b, 9, protowire.EndGroupType)
		}
		return b
	}
	for _, entry := range [][]byte{
		nil, field(1, key("userId"), field(2, ids(one(7)))), field(1, key("userId"), field(2, ids(one(7)), ids(one(8)))), field(1, key("userId"), field(2, ids(one(7))), field(2, ids(one(8)))),
		field(1, key("userId"), field(2, ids(one(7)), blobs(field(1, []byte("8"))))), field(1, key("userId"), field(2, blobs(field(1, []byte("8"))), ids(one(7)))),
		field(1, field(2, ids(one(7))), key("userId")), field(1, key("x"), key("userId"), field(2, ids(one(7)))), field(1, key("userId"), key("x"), field(2, ids(one(7)))),
		field(1, key("userId")), field(1, field(2, ids(one(7)))), field(1, key("userId"), field(2)), field(1, key("userId"), field(2, ids())), field(1, key("userId"), field(2, ids(one(7)), ids())),
		field(1, key("userId"), field(2, ids(field(1, []byte{7})))), field(1, key("userId"), field(2, ids(field(1, []byte{0x80})))), field(1, key("userId"), field(2, ids(field(1, []byte{7, 8})))),
		field(1, key("rating"), field(2, reals(single))), field(1, key("rating"), field(2, reals(field(1, single[1:])))), field(1, key("rating"), field(2, reals(field(1, single[2:])))), field(1, key("rating"), field(2, reals(one(4)))),
		field(1, key("userId"), field(2, ids(single))), field(1, key("\xff")), field(1, key("\xff"), key("userId"), field(2, ids(one(7)))), field(1, key("userId"), field(4, ids(one(7)))), field(1, key("userId"), field(2, field(4, one(7)))),
		field(1, key("x"), field(2, []byte{0xff})), field(1, one(5), key("userId"), field(2, ids(one(7)))), field(2, key("userId")), one(3), {0x00}, {0x07}, protowire.AppendTag(nil, protowire.MaxValidNumber+1, protowire.BytesType), append(protowire.AppendVarint(nil, (1<<29-1)<<3), 5),
		field(1, key("userId"), append(protowire.AppendVarint(nil, (1<<29-1)<<3), 5)), field(1, key("userId"), append(protowire.AppendVarint(nil, (1<<29)<<3), 5)),
		field(1, key("userId"), field(2, []byte{3 << 3, 5}, ids(one(7)))), field(1, key("userId"), field(2, []byte{2 << 3, 5}, ids(one(7)))), append(protowire.AppendVarint(nil, (1<<29)<<3), 5),
		group(3), group(9999), group(10000), group(10001), group(1)[:1], protowire.AppendTag(nil, 9, protowire.EndGroupType), field(1, group(3)), field(1, key("userId"), field(2, group(2))), field(1, key("userId"), field(2, ids(group(2), one(7)))),
	} {
		all = append(all, slices.Concat(whole, field(1, entry)), slices.Concat(field(1, entry), whole), slices.Concat(whole, entry), field(1, entry))
	}
	for cut := range whole {
		all = append(all, whole[:cut])
	}
	return append(all, whole)
}

func TestExamplesAreReadAsProtobufReadsThem(t *testing.T) {
	o := strict
	o.Format = Example
	d, lists := New(modelspec.MovieRanking(), o), New(richSpec(), o)
	for _, record := range append(odd(t), richExamples(t)...) {
		alikeExample(t, d, record)
		alikeExample(t, lists, record)
	}
}

func FuzzExample(f *testing.F) {
	for _, record := range odd(f) {
		f.Add(record)
	}
	for _, record := range richExamples(f) {
		f.Add(record)
	}
	o := strict
	o.Format = Example
	d, lists := New(modelspec.MovieRanking(), o), New(richSpec(), o)
	f.Fuzz(func(t *testing.T, record []byte) {
		for range 2 { // the second time the names stand where they are expected
			alikeExample(t, d, record)
			alikeExample(t, lists, record)
		}
	})
}

// The same ratings are the same samples in either format.
func FuzzFormats(f *testing.F) {
	f.Add(int64(1), int64(2), float32(4), int64(964982703), "x")
	f.Add(int64(-1), int64(1<<48), float32(5.01), int64(1<<32), "userId")
	spec := modelspec.MovieRanking()
	o := strict
	text := New(spec, o)
	o.Format = Example
	wire := New(spec, o)
	f.Fuzz(func(t *testing.T, user, movie int64, stars float32, at int64, other string) {
		if !utf8.ValidString(other) || math.IsNaN(float64(stars)) || math.IsInf(float64(stars), 0) {
			return
		}
		features := map[string]*tf.Feature{other: texts(other)}
		features["userId"], features["movieId"], features["rating"], features["timestamp"] = ints(user), ints(movie), floats(stars), ints(at)
		a, aErr := text.Decode(fmt.Appendf(nil, `{"userId":%d,"movieId":%d,"rating":%v,"timestamp":%d}`, user, movie, float64(stars), at))
		b, bErr := wire.Decode(example(t, features))
		if (aErr == nil) != (bErr == nil) || !sameSample(a, b) {
			t.Errorf("JSON: %v, %v; Example: %v, %v", a, aErr, b, bErr)
		}
	})
}

func TestFormats(t *testing.T) {
	for _, f := range []Format{JSON, Example} {
		if got, err := ParseFormat(f.String()); got != f || err != nil {
			t.Errorf("%v is %v, %v", f, got, err)
		}
	}
	if _, err := ParseFormat("xml"); err == nil || !strings.Contains(err.Error(), "json, example") {
		t.Errorf("xml: %v; want an error that names the formats", err)
	}
}

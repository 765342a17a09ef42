package input

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input/framing"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/specfile"
)

// ruled is a spec with sample rules, as JSON has them, and the engine of it.
func ruled(t testing.TB, spec *model.ModelSpec, rules ...string) *runtime.Engine {
	t.Helper()
	spec = proto.CloneOf(spec)
	for _, text := range rules {
		r := new(model.SampleRule)
		if err := protojson.Unmarshal([]byte(text), r); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		spec.SampleRules = append(spec.SampleRules, r)
	}
	e, err := runtime.New(modelspec.Normalize(spec), 1, 4096)
	if err != nil {
		t.Fatalf("%q: %v", rules, err)
	}
	return e
}

func TestConditionsOfSampleRules(t *testing.T) {
	const ok = `"userId":1,"movieId":2,"rating":4`
	for _, tc := range []struct{ where, record, meets string }{
		{`{"field":"c","in":["de","at"]}`, `"c":"at"`, "yes"},
		{`{"field":"c","in":["de","at"]}`, `"c":"fr"`, "no"},
		{`{"field":"c","in":["de","at"]}`, ``, "no"},
		{`{"field":"c","in":["de"],"missing":true}`, ``, "yes"},
		{`{"field":"c","in":["de"],"missing":true}`, `"c":null`, "yes"},
		{`{"field":"c","in":["de"],"missing":true,"not":true}`, `"c":[]`, "no"},
		{`{"field":"c","in":["de"],"not":true}`, `"c":"fr"`, "yes"},
		{`{"field":"c","in":["de"],"not":true}`, ``, "yes"},
		{`{"field":"c","in":["de"]}`, `"c":["fr","de"]`, "yes"},
		{`{"field":"c","in":["d\u00e9"]}`, `"c":"d\u00e9"`, "yes"},
		{`{"field":"c","in":["null","","[1]"]}`, `"c":[null,[1]]`, "no"},
		{`{"field":"c","in":["true"]}`, `"c":true`, "yes"},
		{`{"field":"c","in":["7"]}`, `"c":"007"`, "yes"},
		{`{"field":"c","in":["4.0"]}`, `"c":4`, "yes"},
		{`{"field":"c","in":["4"]}`, `"c":4.00`, "yes"},
		{`{"field":"c","in":["1e300"]}`, `"c":1e300`, "yes"},
		{`{"field":"c","in":["9007199254740993"]}`, `"c":9007199254740993`, "yes"},
		{`{"field":"c","in":["9007199254740993"]}`, `"c":9007199254740992`, "no"},
		{`{"field":"c","in":["9007199254740993"]}`, `"c":9007199254740992.0`, "no"},
		{`{"field":"c","in":["NaN"]}`, `"c":"NaN"`, "yes"},
		{`{"field":"c"}`, `"c":{}`, "yes"},
		{`{"field":"c"}`, ``, "no"},
		{`{"field":"c","not":true}`, ``, "yes"},
		{`{"field":"c","atLeast":1990,"below":2000}`, `"c":1990`, "yes"},
		{`{"field":"c","atLeast":1990,"below":2000}`, `"c":"1999.5"`, "yes"},
		{`{"field":"c","atLeast":1990,"below":2000}`, `"c":2000`, "no"},
		{`{"field":"c","atLeast":1990}`, `"c":"late"`, "no"},
		{`{"field":"c","below":0}`, `"c":[5,-1]`, "yes"},
		{`{"field":"userId","in":["1"]}`, ``, "yes"},
		{`{"field":"c","startsWith":["de","at"]}`, `"c":"at-vienna"`, "yes"},
		{`{"field":"c","startsWith":["de"]}`, `"c":"d"`, "no"},
		{`{"field":"c","startsWith":["d\u00e9"]}`, `"c":"d\u00e9j\u00e0"`, "yes"},
		{`{"field":"c","startsWith":["1"]}`, `"c":"1999"`, "yes"},
		{`{"field":"c","startsWith":["1"]}`, `"c":1999`, "no"},
		{`{"field":"c","startsWith":["n"]}`, `"c":null`, "no"},
		{`{"field":"c","startsWith":["a"],"missing":true}`, ``, "yes"},
		{`{"field":"c","endsWith":[".ru","vienna"]}`, `"c":["x","at-vienna"]`, "yes"},
		{`{"field":"c","endsWith":["at"]}`, `"c":"at-vienna"`, "no"},
		{`{"field":"c","endsWith":["at"],"not":true}`, `"c":"at-vienna"`, "yes"},
		{`{"field":"c","in":["1","2"],"every":true}`, `"c":[2,1,1]`, "yes"},
		{`{"field":"c","in":["1","2"],"every":true}`, `"c":[2,3]`, "no"},
		{`{"field":"c","in":["1","2"],"every":true}`, `"c":[3,2]`, "no"},
		{`{"field":"c","in":["1","2"],"every":true}`, `"c":[]`, "no"},
		{`{"field":"c","in":["1","2"],"every":true,"missing":true}`, `"c":[]`, "yes"},
		{`{"field":"c","in":["1","2"],"every":true,"not":true}`, `"c":[2,3]`, "yes"},
		{`{"field":"c","atLeast":3,"every":true}`, `"c":[3,4]`, "yes"},
		{`{"field":"c","startsWith":["a"],"every":true}`, `"c":["ab","b"]`, "no"},
		{`{"label":"score","atLeast":0.5}`, ``, "yes"},
		{`{"label":"score","in":["0"]}`, ``, "no"},
		{`{"field":"rating","below":3},{"field":"c"}`, `"c":1`, "no"},
		{`{"field":"rating","atLeast":3},{"field":"c"}`, `"c":1`, "yes"},
	} {
		record := []byte("{" + strings.TrimSuffix(ok+","+tc.record, ",") + "}")
		for action, learnt := range map[string]bool{"keep": tc.meets == "yes", "drop": tc.meets == "no"} {
			e := ruled(t, modelspec.MovieRanking(), fmt.Sprintf(`{"where":[%s],%q:{}}`, tc.where, action))
			b, d := e.NewBatch(), New(e.Spec(), Options{})
			if err := d.Into(b, record, Position{}); err != nil || (b.Len() == 1) != learnt || (d.Dropped()[0] == 0) != learnt {
				t.Errorf("%s %s of %s: %d samples, %d dropped, %v", action, tc.where, record, b.Len(), d.Dropped()[0], err)
			}
		}
	}
}

// What a rule drops need not be readable; what it has to read for that must be.
func TestDroppedSamplesAreNotRead(t *testing.T) {
	e := ruled(t, modelspec.MovieRanking(), `{"where":[{"field":"c"}],"drop":{}}`, `{"where":[{"label":"score","below":0.5}],"drop":{}}`)
	for record, want := range map[string]string{
		`{"c":1,"userId":"x"}`:                      "",
		`{"rating":1,"userId":"x"}`:                 "",
		`{"rating":4,"userId":"x","movieId":1}`:     "not a whole number",
		`{"userId":1,"movieId":1}`:                  `"rating" is missing`,
		`{"c":1,"c":2}`:                             "stands there twice",
		`{"rating":1,"userId":"x","movieId":1}   {`: "not one JSON object",
	} {
		b, d := e.NewBatch(), New(e.Spec(), Options{})
		err := d.Into(b, []byte(record), Position{})
		if dropped := d.Dropped()[0] + d.Dropped()[1]; want == "" && (err != nil || dropped != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || dropped != 0) || b.Len() != 0 {
			t.Errorf("%s: %v, %d dropped; want %q", record, err, dropped, want)
		}
	}
}

// Chance follows from where a sample stands, and from nothing that happened before.
func TestSampleRulesByChance(t *testing.T) {
	const n = 4000
	down := `{"name":"down","where":[{"label":"score","below":0.5}],"drop":{"rate":0.75,"correction":"WEIGHT"}}`
	draw := func(change func(*model.ModelSpec), partition int32, o Options, order func(i int) int) (learnt []bool, weights float64) {
		e := ruled(t, modelspec.MovieRanking(), down)
		if change != nil {
			change(e.Spec())
		}
		learnt = make([]bool, n)
		d, b := New(e.Spec(), o), e.NewBatch()
		for i := range n {
			at := order(i)
			b.Reset()
			if err := d.Into(b, fmt.Appendf(nil, `{"userId":1,"movieId":2,"rating":%d}`, 3+at%2), Position{partition, int64(at)}); err != nil {
				t.Fatal(err)
			}
			if learnt[at] = b.Len() == 1; learnt[at] {
				weights += float64(b.Weights(0)[0])
			}
		}
		return learnt, weights
	}
	forth := func(i int) int { return i }
	first, weights := draw(nil, 3, Options{}, forth)
	negatives := 0
	for i, learnt := range first {
		if i%2 == 1 && !learnt {
			t.Fatalf("record %d is no negative and is dropped", i)
		}
		if i%2 == 0 && learnt {
			negatives++
		}
	}
	if sigma := math.Sqrt(n / 2 * 0.75 * 0.25); math.Abs(float64(negatives)-n/8) > 5*sigma {
		t.Errorf("%d of %d negatives are left, want about %d", negatives, n/2, n/8)
	}
	if want := float64(n/2 + 4*negatives); weights != want {
		t.Errorf("the samples count %v, want %v: each negative four times", weights, want)
	}
	if again, _ := draw(nil, 3, Options{}, func(i int) int { return n - 1 - i }); !slices.Equal(first, again) {
		t.Error("read backwards other samples are dropped")
	}
	for name, other := range map[string]func() ([]bool, float64){
		"partition": func() ([]bool, float64) { return draw(nil, 4, Options{}, forth) },
		"seed":      func() ([]bool, float64) { return draw(func(s *model.ModelSpec) { s.Seed++ }, 3, Options{}, forth) },
		"name": func() ([]bool, float64) {
			return draw(func(s *model.ModelSpec) { s.SampleRules[0].Name = "x" }, 3, Options{}, forth)
		},
	} {
		if drawn, _ := other(); slices.Equal(first, drawn) {
			t.Errorf("another %s draws the same", name)
		}
	}
	if all, weights := draw(nil, 3, Options{Measure: true}, forth); slices.Contains(all, false) || weights != n {
		t.Errorf("to be measured by, %d samples count %v", n, weights)
	}
}

// The samples of one record are drawn each by itself, in every format alike, and what is left of a
// record is what its rules leave.
func TestSampleRulesInAllFormats(t *testing.T) {
	half := `{"name":"half","drop":{"rate":0.5,"correction":"WEIGHT"}}`
	double := `{"name":"double","where":[{"field":"age"}],"weigh":{"weight":3}}`
	e := ruled(t, monolithSpec(), half, double)
	rng := rand.New(rand.NewPCG(5, 5))
	var all []sample
	for len(all) < 200 {
		s := drawSample(rng)
		if _, err := reference(monolithSpec(), Options{}, s.text(t)); err == nil {
			all = append(all, s)
		}
	}
	weighed := func(format Format, record []byte, offset int64) (b *runtime.Batch, d *Decoder) {
		b, d = e.NewBatch(), New(e.Spec(), Options{Format: format})
		if err := d.Into(b, record, Position{1, offset}); err != nil {
			t.Fatal(format, err)
		}
		return b, d
	}
	got, d := weighed(ExampleBatch, batchOf(t, rng, all), 9)
	if n := got.Len(); n < 60 || n > 140 || d.Dropped()[0] != len(all)-n || d.Dropped()[1] != 0 {
		t.Fatalf("of %d samples %d are left, %v dropped", len(all), n, d.Dropped())
	}
	var stream []byte
	for _, s := range all {
		stream = append(stream, frame(rng, framing.Framed, s.example(t, rng))...)
	}
	if b, _ := weighed(MonolithExample.withFraming(framing.Framed), stream, 9); b.Len() != got.Len() || !slices.Equal(b.Labels(1), got.Labels(1)) {
		t.Errorf("a stream of examples leaves %d samples, a batch %d", b.Len(), got.Len())
	}
	aged := 0
	for _, s := range all[:50] {
		b, _ := weighed(MonolithExample, s.example(t, rng), 9)
		if one, _ := weighed(Instance, s.instance(t, rng), 9); one.Len() != b.Len() {
			t.Fatalf("an instance leaves %d samples, an example %d", one.Len(), b.Len())
		}
		if b.Len() == 0 || s.line.Rank != nil {
			continue
		}
		want := float32(2)
		if s.age != nil {
			want, aged = 6, aged+1
		}
		if w := b.Weights(1)[0]; w != want {
			t.Errorf("a sample with age %v counts %v, want %v", s.age, w, want)
		}
	}
	if first, _ := weighed(MonolithExample, all[0].example(t, rng), 9); first.Len() == 1 && aged == 0 {
		t.Error("no sample was weighed by its field")
	}
}

// A task that does not learn from a sample has no label for a condition.
func TestLabelsOfMaskedSamples(t *testing.T) {
	spec := monolithSpec()
	spec.Tasks[0].WeightField, spec.Tasks[0].MaskField, spec.Tasks[1].MaskField = "", "seen", ""
	for i, task := range spec.Tasks {
		task.Label.Field = fmt.Sprintf("label%d", i)
	}
	for _, f := range spec.Features {
		if len(f.Cross) > 0 {
			continue
		}
		f.Missing, f.DefaultIds = model.Feature_EMPTY, nil
	}
	for _, f := range spec.Floats {
		f.Missing, f.Default = model.Feature_EMPTY, 0
	}
	for missing, learnt := range map[bool]int{false: 1, true: 0} {
		e := ruled(t, spec, fmt.Sprintf(`{"where":[{"label":"like","below":0.5,"missing":%v}],"drop":{}}`, missing))
		b := e.NewBatch()
		if err := New(e.Spec(), Options{}).Into(b, []byte(`{"seen":0,"label1":1}`), Position{}); err != nil || b.Len() != learnt {
			t.Errorf("missing %v: %d samples, %v", missing, b.Len(), err)
		}
		if err := New(e.Spec(), Options{}).Into(b, []byte(`{"seen":1,"label0":0,"label1":1}`), Position{}); err != nil || b.Len() != learnt {
			t.Errorf("missing %v: a negative is learnt, %v", missing, err)
		}
	}
}

// A label may be a feature's field, the first too: where it is missing, a sample that counts for nothing needs none.
func TestALabelThatIsAFeature(t *testing.T) {
	spec, err := specfile.Parse([]byte(`
name: m
features: [{name: ad, slot: 1, table: t, missing: EMPTY}]
tables: [{name: t, dim: 1}]
layers: [{name: logit, units: 1}]
tasks: [{logit: logit, label: {field: ad, threshold: 5}, weight_field: w}]
dense_optimizer: {adagrad: {learning_rate: 0.01, initial_accumulator_value: 0.1}}
`))
	if err != nil {
		t.Fatal(err)
	}
	d := New(spec, Options{})
	for record, want := range map[string]string{
		`{"w":0}`:        "[] 0 0 <nil>",
		`{"w":0,"ad":5}`: "[281474976710661] 1 0 <nil>",
		`{"w":2,"ad":4}`: "[281474976710660] 0 2 <nil>",
		`{"w":2}`:        `field "ad" is missing`,
		`{}`:             `field "ad" is missing`,
	} {
		s, err := d.Decode([]byte(record))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(s.IDs[0], s.Labels[0], s.Weights[0], err)
		}
		if got != want {
			t.Errorf("%s is %s, want %s", record, got, want)
		}
	}
}

// Numbers of Examples are compared as they are read, and Serving knows no rules.
func TestSampleRulesOfExamples(t *testing.T) {
	e := ruled(t, modelspec.MovieRanking(), `{"where":[{"field":"x","atLeast":2}],"keep":{}}`)
	for _, tc := range []struct {
		x      *tf.Feature
		learnt int
	}{{ints(2), 1}, {ints(1), 0}, {floats(1, 2.5), 1}, {texts("3"), 1}, {texts("a"), 0}, {ints(), 0}} {
		b := e.NewBatch()
		record := rating(t, "x", tc.x)
		if err := New(e.Spec(), Options{Format: Example}).Into(b, record, Position{}); err != nil || b.Len() != tc.learnt {
			t.Errorf("%v: %d samples, %v", tc.x, b.Len(), err)
		}
		b.Reset()
		if err := New(e.Spec(), Options{Format: Example, Serving: true}).Into(b, record, Position{}); err != nil || b.Len() != 1 {
			t.Errorf("%v, to be served: %d samples, %v", tc.x, b.Len(), err)
		}
	}
}

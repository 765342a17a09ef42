//go:build !race

package input

import (
	"math/rand/v2"
	"testing"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"

	"github.com/monolith-go/monolith/internal/input/framing"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Once its memory has the size for it, a decoder reads a record without allocating.
func TestDecodingAllocatesNothing(t *testing.T) {
	records := map[Format][][]byte{Example: {rating(t, "x", ints(1)), rating(t, "userId", texts("77"))}}
	for _, r := range []string{
		`{"userId":1,"movieId":2,"rating":4.0,"timestamp":964982703}`,
		`{"userId":"281474976710655","a":"\ud83d\ude00","é":{"b":[[[1,{}]]]},"\u006dovieId":"\u0032","rating":"3.141592653589793"}`,
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"userId":1,"movieId":2,"rating":-0}`,
	} {
		records[JSON] = append(records[JSON], []byte(r))
	}
	for format, records := range records {
		d := New(modelspec.MovieRanking(), Options{Format: format, TimeField: "timestamp"})
		allocatesNothing(t, d, records)
	}
	lists := map[Format][][]byte{Example: {example(t, map[string]*tf.Feature{"userId": ints(1, 2), "movieId": ints(3, 4), "genres": texts("a", "b"), "vec": floats(1, 2, 3), "rating": floats(4), "stars": floats(2)})}}
	for _, r := range richRecords()[:12] {
		if _, err := New(richSpec(), Options{}).Decode([]byte(r)); err == nil {
			lists[JSON] = append(lists[JSON], []byte(r))
		}
	}
	for format, records := range lists {
		allocatesNothing(t, New(richSpec(), Options{Format: format, TimeField: "timestamp"}), records)
	}
}

func allocatesNothing(t *testing.T, d *Decoder, records [][]byte) {
	t.Helper()
	decode := func() {
		for _, r := range records {
			if _, err := d.Decode(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	decode()
	if n := testing.AllocsPerRun(100, decode); n > 0 {
		t.Errorf("%v: %v allocations", d.options.Format, n)
	}
}

// Nor does it by the spec's rules.
func TestSampleRulesAllocateNothing(t *testing.T) {
	e := ruled(t, modelspec.MovieRanking(), `{"where":[{"field":"c","in":["a","b","7"],"not":true}],"keep":{}}`, `{"where":[{"field":"d","atLeast":0.5}],"drop":{}}`,
		`{"where":[{"label":"score","below":0.5}],"drop":{"rate":0.5,"correction":"WEIGHT"}}`,
		`{"reweight":{"actions":"f","preActions":"e","actionPriority":[2,1],"reweight":[{"action":1,"weight":2,"label":4},{"action":2,"weight":3,"label":-4}]}}`)
	d, b, offset := New(e.Spec(), Options{}), e.NewBatch(), int64(0)
	records := [][]byte{
		[]byte(`{"userId":1,"movieId":2,"rating":3,"c":"\u0041","d":[0.1,"0.2"]}`),
		[]byte(`{"userId":1,"movieId":2,"rating":3,"c":8}`), []byte(`{"userId":1,"movieId":2,"rating":3,"c":8,"f":[1,2],"e":["1"]}`), []byte(`{"userId":1,"movieId":2,"rating":3,"c":7}`),
	}
	into := func() {
		b.Reset()
		offset++
		for _, r := range records {
			if err := d.Into(b, r, Position{1, offset}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 100 { // until the batch has its size
		into()
	}
	if n := testing.AllocsPerRun(100, into); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Nor does it for Monolith's formats, into a batch that has its size.
func TestMonolithFormatsAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	e := monolithEngine(t)
	whole := func() sample {
		for {
			s := drawSample(rng)
			if _, err := reference(e.Spec(), Options{}, s.text(t)); err == nil {
				return s
			}
		}
	}
	one, two := whole(), whole()
	for format, record := range map[Format][]byte{
		MonolithExample: one.example(t, rng), Instance: one.instance(t, rng), ExampleBatch: batchOf(t, rng, []sample{one, two}),
		Instance.withFraming(framing.KafkaDump): frame(rng, framing.KafkaDump, one.instance(t, rng)),
	} {
		d, b := New(e.Spec(), Options{Format: format}), e.NewBatch()
		into := func() {
			b.Reset()
			if err := d.Into(b, record, Position{}); err != nil {
				t.Fatal(err)
			}
		}
		into()
		if n := testing.AllocsPerRun(100, into); n > 0 {
			t.Errorf("%v: %v allocations", format, n)
		}
	}
}

package input

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/input/framing"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
)

// What a rule says of a sample's actions is how much it counts in every task, and what one task learns.
func TestReweightByActions(t *testing.T) {
	e := ruled(t, modelspec.MovieRanking(), `{"where":[{"field":"skip","missing":true,"not":true}],"drop":{}}`,
		`{"name":"acts","where":[{"field":"other","not":true}],"reweight":{"actions":"did","preActions":"had","actionPriority":[1,2,3],"reweight":[{"action":1,"weight":5,"label":4},{"action":2,"weight":7,"label":4},{"action":3,"label":-4}]}}`,
		`{"where":[{"label":"score","below":0.5}],"weigh":{"weight":0.5}}`)
	for _, tc := range []struct{ record, want string }{
		{`"rating":5`, "1 [1] [1]"}, {`"rating":1`, "1 [0] [0.5]"},
		{`"rating":1,"did":[2]`, "1 [1] [7]"}, {`"rating":5,"did":3`, "1 [0] [0.5]"},
		{`"rating":1,"did":["3",1]`, "1 [1] [5]"}, {`"rating":1,"did":[1],"had":[3]`, "1 [1] [6]"},
		{`"rating":5,"did":1,"had":2`, "1 [0] [1]"}, // the opposite: it counts 2, and half of that by the last rule
		{`"rating":5,"did":2,"had":2`, "0 [] []"}, {`"rating":5,"did":[],"had":[9]`, "0 [] []"},
		{`"rating":5,"did":2,"had":2,"other":1`, "1 [1] [1]"},
		{`"rating":5,"did":[1,"x"]`, `field "did", value 2, is "x", not a whole number`},
		{`"rating":5,"had":1.5`, `field "had" is 1.5, not a whole number`},
		{`"did":2`, `field "rating" is missing`},
	} {
		b, d := e.NewBatch(), New(e.Spec(), Options{})
		err := d.Into(b, []byte(`{"userId":1,"movieId":2,`+tc.record+`}`), Position{})
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(b.Len(), b.Labels(0), b.Weights(0))
		}
		if got != tc.want || err == nil && d.Dropped()[1] != 1-b.Len() {
			t.Errorf("%s: %s, dropped %v; want %s", tc.record, got, d.Dropped(), tc.want)
		}
	}
	for record, want := range map[string]string{`"did":1,"had":2`: "1 [1] [5]", `"did":1,"had":1`: "0 [] []"} { // to be measured by
		b, d := e.NewBatch(), New(e.Spec(), Options{Measure: true})
		if err := d.Into(b, []byte(`{"userId":1,"movieId":2,"rating":5,`+record+`}`), Position{}); err != nil || fmt.Sprint(b.Len(), b.Labels(0), b.Weights(0)) != want {
			t.Errorf("%s to be measured by: %v, %v, %v; want %s", record, b.Labels(0), b.Weights(0), err, want)
		}
	}
	b := e.NewBatch() // what a label may be is said of the record's
	bounded := New(e.Spec(), Options{Min: 0.5, Max: 5})
	if err := bounded.Into(b, []byte(`{"userId":1,"movieId":2,"rating":5,"did":3}`), Position{}); err != nil || b.Len() != 1 {
		t.Error(err)
	}
	if err := bounded.Into(b, []byte(`{"userId":1,"movieId":2,"rating":6,"did":3}`), Position{}); err == nil || !strings.Contains(err.Error(), "outside 0.5 to 5") {
		t.Error(err)
	}
}

// Actions are found in the line id of Monolith's formats, of each sample its own, and change the label of one task alone.
func TestReweightInAllFormats(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	spec := monolithSpec()
	spec.Tasks[1].Label.Raw, spec.Tasks[1].Label.Threshold = true, 0
	e := ruled(t, spec, `{"reweight":{"label":"stars","actions":"__LINE_ID__.actions","preActions":"__LINE_ID__.pre_actions","actionPriority":[1,2,3],"reweight":[{"action":1,"weight":5,"label":1},{"action":2,"weight":7,"label":1},{"action":3,"weight":2,"label":-1}]}}`)
	draw := func() (actions []int32) {
		for range rng.IntN(3) {
			actions = append(actions, 1+rng.Int32N(4))
		}
		return actions
	}
	var all []sample
	for len(all) < 60 {
		s := drawSample(rng)
		s.line = &idlpb.LineId{Actions: draw(), PreActions: draw(), Rank: proto.Int32(1)}
		if _, err := reference(spec, Options{}, s.text(t)); err == nil {
			all = append(all, s)
		}
	}
	var stream []byte
	for _, s := range all {
		stream = append(stream, frame(rng, framing.Framed, s.example(t, rng))...)
	}
	whole := e.NewBatch()
	if err := New(e.Spec(), Options{Format: ExampleBatch}).Into(whole, batchOf(t, rng, all), Position{}); err != nil {
		t.Fatal(err)
	}
	streamed := e.NewBatch()
	if err := New(e.Spec(), Options{Format: MonolithExample.withFraming(framing.Framed)}).Into(streamed, stream, Position{}); err != nil {
		t.Fatal(err)
	}
	sameBatches(t, e, whole, streamed)
	at, opposite := 0, 0
	for _, s := range all {
		text := strings.TrimSuffix(string(s.text(t)), "}")
		for name, actions := range map[string][]int32{"actions": s.line.Actions, "pre_actions": s.line.PreActions} {
			text += fmt.Sprintf(`,"__LINE_ID__.%s":[%s]`, name, strings.Trim(strings.ReplaceAll(fmt.Sprint(actions), " ", ","), "[]"))
		}
		learnt := 0
		for format, record := range map[Format][]byte{JSON: []byte(text + "}"), MonolithExample: s.example(t, rng), Instance: s.instance(t, rng)} {
			b, d := e.NewBatch(), New(e.Spec(), Options{Format: format})
			if err := d.Into(b, record, Position{}); err != nil {
				t.Fatal(format, err)
			}
			if b.Len() == 0 {
				if d.Dropped()[0] != 1 {
					t.Errorf("%v: %v are dropped of %s", format, d.Dropped(), text)
				}
				continue
			}
			for task := range 2 {
				if b.Labels(task)[0] != whole.Labels(task)[at] || b.Weights(task)[0] != whole.Weights(task)[at] {
					t.Errorf("%v: task %d has the label %v and counts %v of %s; in a batch %v and %v", format, task, b.Labels(task), b.Weights(task), text, whole.Labels(task)[at], whole.Weights(task)[at])
				}
			}
			if learnt = 1; format == JSON && b.Labels(1)[0] == -1 && !slices.Contains(s.line.Actions, 3) {
				opposite++
			}
		}
		at += learnt
	}
	if at != whole.Len() || at == len(all) || opposite == 0 {
		t.Errorf("%d samples of %d are learnt, %d in a batch, %d with the opposite label", at, len(all), whole.Len(), opposite)
	}
}

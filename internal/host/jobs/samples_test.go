package jobs

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

const rules = `
sample_rules:
- {name: region, where: [{field: region, in: ["eu", "7"]}], keep: {}}
- {name: negatives, where: [{label: logit, below: 0.5}], drop: {rate: 0.9, correction: WEIGHT}}
`

// seldom are records of which one in ten is liked, from two regions and a third.
func seldom(seed uint64, n int) string {
	var b strings.Builder
	rng := rand.New(rand.NewPCG(seed, 2))
	for range n {
		rating := 1
		if rng.IntN(10) == 0 {
			rating = 5
		}
		fmt.Fprintf(&b, "{\"userId\":%d,\"movieId\":%d,\"rating\":%d,\"region\":%s}\n", 1+rng.IntN(5), 1+rng.IntN(5), rating, []string{`"eu"`, `7.0`, `"us"`}[rng.IntN(3)])
	}
	return b.String()
}

// Samples that rules drop are not learnt, whoever goes on with the job: in one order the bits are those of
// a job that nobody interrupted. What the correction puts right is the probability that is learnt.
func TestTrainBySampleRules(t *testing.T) {
	r := newRoom(t)
	r.write("a.json", seldom(1, 6000))
	r.write("b.json", seldom(2, 6000))
	r.write("test.json", seldom(3, 3000))
	files := []string{"--files", "a.json,b.json", "--batch", "50", "--deterministic", "--shards", "2"}
	in := func(dir string, args ...string) []string { return append(append(args, files...), "--dir", dir) }

	r.write("model.yaml", spec+rules)
	whole := r.train("", in("whole")...)
	if n := whole.Dropped["negatives"]; n < 6000 || n > 6900 || whole.Dropped["region"] < 3700 || whole.Dropped["region"] > 4300 || whole.Samples+n+whole.Dropped["region"] != 12000 || whole.Learnt != 12000 {
		t.Errorf("%d samples, dropped %v, %d records learnt", whole.Samples, whole.Dropped, whole.Learnt)
	}
	var page bytes.Buffer
	if err := whole.Print(&page); err != nil || !strings.Contains(page.String(), `samples by the rule "negatives"`) {
		t.Errorf("%v:\n%s", err, page.String())
	}
	begun := r.train("", in("parts", "--steps", "77")...)
	rest := r.train("", in("parts")...)
	if begun.Samples+rest.Samples != whole.Samples || begun.Dropped["negatives"]+rest.Dropped["negatives"] != whole.Dropped["negatives"] {
		t.Errorf("%d and %d samples in parts, %d at once", begun.Samples, rest.Samples, whole.Samples)
	}
	for shard := range 2 {
		if a, b := hash(t, rest, shard), hash(t, whole, shard); a != b {
			t.Errorf("shard %d differs: %s in parts, %s at once", shard, a, b)
		}
	}

	r.write("model.yaml", spec+strings.Replace(rules, ", correction: WEIGHT", "", 1))
	r.train("learns another declaration of model likes", in("whole")...)
	r.train("", in("biased")...)
	ideal := -(0.1*math.Log(0.1) + 0.9*math.Log(0.9)) // the loss of who always says one in ten
	corrected, biased := r.evaluate("--files", "test.json", "--dir", "whole"), r.evaluate("--files", "test.json", "--dir", "biased")
	if corrected.Samples < 1850 || corrected.Samples > 2150 || corrected.Samples+corrected.Dropped != 3000 {
		t.Errorf("%d samples are evaluated, %d dropped", corrected.Samples, corrected.Dropped)
	}
	if *corrected.Loss > ideal+0.05 || *biased.Loss < ideal+0.2 {
		t.Errorf("the loss is %v with a correction, %v without, %v at best", *corrected.Loss, *biased.Loss, ideal)
	}
}

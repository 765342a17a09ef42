package impression_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/internal/model/impression"
)

func TestKeyOf(t *testing.T) {
	for _, tc := range []struct {
		request, position string
		ok                bool
	}{{"r", "0", true}, {"r", "7", true}, {"", "7", false}, {"r", "", false}, {"r", "-1", false}, {"r", "x", false}} {
		k, ok := impression.KeyOf(map[string]string{impression.HeaderRequest: tc.request, impression.HeaderPosition: tc.position})
		if ok != tc.ok || ok && (k.RequestID != "r" || fmt.Sprint(k.Row) != tc.position) {
			t.Errorf("%q, %q: %v, %v", tc.request, tc.position, k, ok)
		}
	}
}

func TestJoiner(t *testing.T) {
	j := impression.Joiner{Limit: 10}
	one, two := impression.Of{Model: "m", Version: 1}, impression.Of{Model: "m", Version: 2}
	add := func(of impression.Of, id string, score float32) {
		j.Add(of, &impression.Impression{RequestID: id, Row: 3, Score: score, TookUS: 5})
	}
	add(one, "a", 0.5)
	add(one, "a", 0.75) // the first one stands
	add(two, "a", 0.25)
	for of, want := range map[impression.Of]float64{one: 0.5, two: 0.25} {
		if a, ok := j.Answer(of, impression.Key{RequestID: "a", Row: 3}); !ok || a.Score != want || a.TookUS != 5 {
			t.Errorf("%v: %v, %v", of, a, ok)
		}
	}
	if _, ok := j.Answer(one, impression.Key{RequestID: "a", Row: 2}); ok {
		t.Error("another row has an answer")
	}
	j.Forget(one, impression.Key{RequestID: "a", Row: 3})
	for i := range 1000 {
		add(one, fmt.Sprint(i), 1)
		for back := range min(i, 10) {
			if _, ok := j.Answer(one, impression.Key{RequestID: fmt.Sprint(i - back), Row: 3}); !ok {
				t.Fatalf("after %d the one %d before it is forgotten", i, back)
			}
		}
	}
	held := 0
	for i := range 1000 {
		if _, ok := j.Answer(one, impression.Key{RequestID: fmt.Sprint(i), Row: 3}); ok {
			held++
		}
	}
	if held > 20 {
		t.Errorf("%d answers are held, at most twice the limit may be", held)
	}
	if _, ok := j.Answer(two, impression.Key{RequestID: "a", Row: 3}); ok {
		t.Error("the oldest answer is held for ever")
	}
}

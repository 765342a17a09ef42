package samplerule

import (
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
)

// Action 1 is the strongest, then 2, 3 and 4, which sets no label; 5 and 6 have no rank.
const byActions = `{"actionPriority":[1,2,3,4],"reweight":[{"action":1,"weight":5,"label":1},{"action":2,"weight":2,"label":1},{"action":3,"weight":3,"label":-1},{"action":5,"weight":7,"label":1}]}`

func made(t *testing.T, text string, alone bool) *Reweight {
	t.Helper()
	r := new(model.SampleRule_Reweight)
	if err := protojson.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return ReweightOf(r, func(v float64) float32 { return float32(v) }, alone)
}

func TestReweight(t *testing.T) {
	product := made(t, byActions, false)
	sum := made(t, byActions[:len(byActions)-1]+`,"add":true}`, false)
	alone := made(t, byActions, true)
	type actions = []int64
	for _, tc := range []struct {
		why             string
		r               *Reweight
		before, actions []int64
		count           float64
		label           float32
	}{
		{"nobody did anything", product, nil, nil, 1, 9},
		{"the first action", product, nil, actions{2}, 2, 1},
		{"the strongest alone counts of those that have a rank", product, nil, actions{3, 1, 2}, 5, 1},
		{"as often as it was done", product, nil, actions{2, 2}, 4, 1},
		{"and those without one", product, nil, actions{2, 5}, 14, 1},
		{"summed up", sum, nil, actions{2, 5}, 10, 1},
		{"an action of neither rank nor weight", product, nil, actions{6}, 1, 9},
		{"one without a rank has a weight and sets no label", product, nil, actions{5}, 7, 9},
		{"a rank without a weight", product, nil, actions{4}, 1, 9},
		{"a stronger one of another label", product, actions{3}, actions{3, 1}, 8, 1},
		{"a stronger one of the same label, of which there are more", product, actions{2}, actions{1}, 3, 1},
		{"and of which there are fewer", product, actions{2, 5}, actions{1}, 9, -1},
		{"and of which there are as many", made(t, `{"actionPriority":[1,2],"reweight":[{"action":1,"label":1},{"action":2,"label":1}]}`, false), actions{2}, actions{1}, 0, 1},
		{"a stronger one than one without a rank", product, actions{5}, actions{2}, 2, 1},
		{"a stronger one than one without a weight", product, actions{4}, actions{2}, 2, 1},
		{"no stronger", product, actions{1}, actions{1, 2}, 0, 9},
		{"weaker", product, actions{1}, actions{2}, 0, 9},
		{"actions that are gone", product, actions{6}, nil, 0, 9},
		{"neither has a rank", product, actions{6}, actions{5}, 0, 9},
		{"alone, more", alone, actions{2}, actions{1}, 5, 1},
		{"alone, no stronger", alone, actions{1}, actions{1}, 0, 9},
	} {
		if count, label := tc.r.Of(9, tc.before, tc.actions); count != tc.count || label != tc.label {
			t.Errorf("%s: %v after %v counts %v with the label %v; want %v and %v", tc.why, tc.actions, tc.before, count, label, tc.count, tc.label)
		}
	}
	many := make(actions, 1000)
	for i := range many {
		many[i] = 5
	}
	if count, _ := product.Of(9, nil, append(many, 1)); count != math.MaxFloat32 {
		t.Errorf("more than a float32 holds is %v", count)
	}
	if count, _ := product.Of(9, append(many, 2), append(many, 1)); count != 0 {
		t.Errorf("more than a float32 holds, twice, is %v", count)
	}
}

// However often a sample came, for stronger and stronger actions, what its labels come to together is what the last
// one would have been alone.
func TestWhatCameBeforeIsMadeUpFor(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	chains, takenBack := 0, 0
	for range 5000 {
		r := &Reweight{add: rng.IntN(2) == 0, ranks: map[int64]int{}, actions: map[int64]action{}}
		for a := range int64(6) {
			label := float32(1 - 2*rng.IntN(2))
			r.ranks[a], r.actions[a] = 1+int(a), action{float64(rng.IntN(4)), label, -label}
		}
		for a := int64(6); a < 8; a++ {
			r.actions[a] = action{float64(rng.IntN(4)), 1, -1}
		}
		var before []int64
		total := 0.0
		for range 3 {
			actions := make([]int64, 1+rng.IntN(3))
			for i := range actions {
				actions[i] = rng.Int64N(8)
			}
			count, label := r.Of(-1, before, actions)
			if _, rank := r.strongest(actions); rank == unranked || count < 0 {
				break // its label is its own, of which the next one is not told
			}
			_, was := r.strongest(before)
			if _, is := r.strongest(actions); is >= was {
				if count != 0 {
					t.Fatalf("%v after %v counts %v", actions, before, count)
				}
				continue
			}
			total += count * float64(label)
			once, last := r.Of(-1, nil, actions)
			if want := once * float64(last); total != want {
				t.Fatalf("%v after %v: together %v, alone %v", actions, before, total, want)
			}
			if label != last {
				takenBack++
			}
			before = actions
			chains++
		}
	}
	if chains < 1000 || takenBack < 100 {
		t.Errorf("%d samples came, %d with the opposite label", chains, takenBack)
	}
}

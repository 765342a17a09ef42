package table

import (
	"errors"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/kernels/optim"
)

func TestRoomSaysWhatOptimizeWould(t *testing.T) {
	sgd, err := optim.NewSGD(1)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := New(Config{Name: "t", Dim: 1, Optimizer: sgd, Initializer: Zeros{}, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		ids  []int64
		fits bool
	}{
		{[]int64{1, 2, 2, 1}, true}, {[]int64{3, 4}, false}, {[]int64{1, 2, 3}, true}, {[]int64{3, 2, 1}, true}, {[]int64{4}, false}, {nil, true},
	} {
		for range 2 { // asking reserves nothing
			if err := tab.Room(step.ids); errors.Is(err, ErrFull) == step.fits {
				t.Fatalf("Room(%v) = %v", step.ids, err)
			}
		}
		if err := tab.Optimize(step.ids, make([]float32, len(step.ids)), 1); (err == nil) != step.fits {
			t.Fatalf("Optimize(%v) = %v", step.ids, err)
		}
	}
}

func TestRoomRefusesWhatOptimizeRefuses(t *testing.T) {
	for _, limit := range []int{1, 3} {
		tab := must(New(Config{Name: "t", Dim: 1, Optimizer: optim.SGD{LearningRate: 1}, Initializer: Zeros{}, MaxRows: limit}))
		if err := tab.Room([]int64{1}); err != nil { // leaves a plan in the pool
			t.Fatal(err)
		}
		ids := []int64{1, NoID}
		err := tab.Room(ids)
		if err == nil || errors.Is(err, ErrFull) {
			t.Errorf("Room(%v) = %v with %d rows at most, Optimize %v", ids, err, limit, tab.Optimize(ids, make([]float32, 2), 1))
		}
	}
}

func TestExpireEachTellsWhatIsGone(t *testing.T) {
	sgd, err := optim.NewSGD(1)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := New(Config{Name: "t", Dim: 1, Optimizer: sgd, Initializer: Zeros{}})
	if err != nil {
		t.Fatal(err)
	}
	var want []int64
	for id := range int64(5000) {
		unix := uint32(86400)
		if id%3 == 0 {
			unix, want = 1, append(want, id)
		}
		if err := tab.Assign([]int64{id}, []float32{1}, unix, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []int64
	for done := false; !done; {
		_, done = tab.ExpireEach(86401, Expiry{DefaultDays: 1}, 100, func(id int64) { got = append(got, id) })
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || tab.Len() != 5000-len(want) {
		t.Errorf("%d ids were told of %d, %d rows are left", len(got), len(want), tab.Len())
	}
}

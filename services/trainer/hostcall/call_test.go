package hostcall

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Tensors travel by type, in the order in which types came first, and come back under their names and sizes.
func TestACallThereAndBack(t *testing.T) {
	c := NewCall(7)
	for _, tensor := range []Tensor{
		{Name: "labels", Floats: []float32{1, 0, 1}}, {Name: "uid_bucket", Ints: []int64{4, 5}}, {Name: "loss_avg", Floats: []float32{.5}}, {Name: "none", Floats: []float32{}},
	} {
		if err := c.Record(tensor); err != nil {
			t.Fatal(err)
		}
	}
	p := c.Compress()
	if len(p.groups) != 2 || !slices.Equal(p.groups[0].ints, []int64{7, 4, 5}) || !slices.Equal(p.groups[1].floats, []float32{1, 0, 1, .5}) {
		t.Errorf("it travels as %+v", p.groups)
	}
	if !slices.Equal(p.groups[0].sizes, []int{1, 2}) || !slices.Equal(p.groups[1].sizes, []int{3, 1, 0}) {
		t.Errorf("of sizes %v and %v", p.groups[0].sizes, p.groups[1].sizes)
	}
	c.tensors[1].Floats[0] = 9 // the step goes on with its memory
	step, all, err := p.Decompress()
	if want := "[{global_step [7] []} {uid_bucket [4 5] []} {labels [] [1 0 1]} {loss_avg [] [0.5]} {none [] []}]"; err != nil || step != 7 || fmt.Sprint(all) != want {
		t.Errorf("step %d: %v, %v; want %s", step, all, err, want)
	}
}

func TestTensorsHaveNamesOfTheirOwn(t *testing.T) {
	c := NewCall(1)
	for _, name := range []string{"global_step", "a", "a"} {
		err := c.Record(Tensor{Name: name, Ints: []int64{1}})
		if (err != nil) != (name == "global_step" || len(c.tensors) == 2 && err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(c.tensors) != 2 {
		t.Errorf("%d tensors", len(c.tensors))
	}
}

// The error has the whole name of what stands in the first place.
func TestACallWithoutAStep(t *testing.T) {
	for says, c := range map[string]Call{
		"begins with labels, not with a global_step":      {tensors: []Tensor{{Name: "labels", Floats: []float32{1}}}},
		"begins with nothing, not with a global_step":     {},
		"begins with global_step, not with a global_step": {tensors: []Tensor{{Name: "global_step", Ints: []int64{1, 2}}}},
	} {
		p := c.Compress()
		if _, _, err := p.Decompress(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/kernels/optim"
)

func row(o optim.Optimizer, w ...float32) ([]float32, []float32) {
	slots := make([]float32, o.SlotSize(len(w)))
	o.InitSlots(slots)
	return w, slots
}

func TestBatchSoftmax(t *testing.T) {
	o := must(optim.NewBatchSoftmax(.25))
	w, slots := row(o, 8)
	big := int64(1)<<40 + 12345
	want := 8.
	last := int64(0)
	for _, step := range []int64{4, 4, 100, -3, big} {
		o.Update(w, slots, []float32{float32(math.NaN())}, optim.Step{GlobalStep: step})
		step = max(step, 0)
		want = float64(float32(.75*want + .25*float64(step-last)))
		last = step
		if float64(w[0]) != want || optim.Int(slots) != step {
			t.Errorf("step %d: %g, %d; want %g", step, w[0], optim.Int(slots), want)
		}
	}
	if o.SlotSize(2) != -1 || optim.CheckDim(o, 2) == nil || optim.CheckDim(o, 1) != nil || optim.CheckDim(o, 0) == nil {
		t.Error("dims other than 1")
	}
}

func TestInt(t *testing.T) {
	plane := make([]float32, 2)
	for _, n := range []int64{0, 1, 1<<24 - 1, 1 << 24, 1<<24 + 1, 123456789012, 1<<48 - 1} {
		if optim.PutInt(plane, n); optim.Int(plane) != n || math.IsInf(float64(plane[1]), 0) {
			t.Errorf("%d became %d", n, optim.Int(plane))
		}
	}
	if optim.PutInt(plane, -5); optim.Int(plane) != 0 {
		t.Error("below 0")
	}
	if optim.PutInt(plane, 1<<60); optim.Int(plane) != 1<<48-1 {
		t.Error("beyond 48 bits")
	}
}

func TestDC(t *testing.T) {
	o := must(optim.NewDC(2, must(optim.NewMomentum(optim.Momentum{LearningRate: .5, Momentum: .5}))))
	w, slots := row(o, 1, -1)
	n, last := []float64{0, 0}, []float64{0, 0}
	x := []float64{1, -1}
	for _, g := range [][]float32{{1, .5}, {-.25, 2}, {0, 1}, {.125, -.5}} {
		o.Update(w, slots, g, optim.Step{})
		for i := range x {
			d := float64(g[i]) + 2*float64(g[i])*float64(g[i])*last[i]
			n[i] = .5*n[i] - .5*d
			x[i], last[i] = x[i]+n[i], n[i]
			if math.Abs(float64(w[i])-x[i]) > 1e-6*(1+math.Abs(x[i])) {
				t.Fatalf("weight %d: %g, want %g", i, w[i], x[i])
			}
		}
	}
	if d := o.Dumps(2); len(d) != 1 || d[0].Kind != "momentum" || d[0].Planes[0] != (optim.Plane{Name: "n", From: 2, To: 4}) {
		t.Errorf("dumps %+v", d)
	}
	w, slots = row(must(optim.NewDC(0, must(optim.NewBatchSoftmax(1)))), 1) // slots that fit no other dim
	if len(slots) != 3 || w[0] != 1 {
		t.Errorf("%v", slots)
	}
}

func TestScheduled(t *testing.T) {
	warm := must(optim.NewWarmUp(.5, 10))
	o := must(optim.NewScheduled(must(optim.NewSGD(100)), warm))
	w, slots := row(o, 0)
	for step, want := range []float32{0, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .5, .5} {
		w[0] = 0
		if o.Update(w, slots, []float32{-1}, optim.Step{GlobalStep: int64(step)}); math.Abs(float64(w[0]-want)) > 1e-7 {
			t.Errorf("step %d moved %g, want %g", step, w[0], want)
		}
	}
	w[0] = 0
	if o.Update(w, slots, []float32{-1}, optim.Step{GlobalStep: 3, LearningRate: 7}); w[0] != 7 {
		t.Errorf("a step's own rate moved %g", w[0])
	}
	for _, inner := range []optim.Optimizer{must(optim.NewRMSProp(optim.RMSProp{LearningRate: 1})), must(optim.NewMovingAverage(.5)), nil} {
		if _, err := optim.NewScheduled(inner, warm); err == nil {
			t.Errorf("%T follows a schedule", inner)
		}
	}
	if _, err := optim.NewScheduled(o, nil); err == nil {
		t.Error("no rate")
	}
}

// At a rate of 0, no weight moves and nothing becomes NaN, whatever was before.
func TestZeroRate(t *testing.T) {
	for _, e := range entries() {
		if e.fixed != 0 {
			continue // knows no other rate
		}
		for _, warm := range []int{0, 3} {
			w, slots := row(e.o, .5, 0, -2)
			for range warm {
				e.o.Update(w, slots, []float32{1, 0, -3}, optim.Step{})
			}
			if strings.HasPrefix(e.name, "momentum") && warm > 0 {
				continue // goes on by its momentum
			}
			before := slices.Clone(w)
			for range 3 {
				e.o.Update(w, slots, []float32{1, 0, -3}, optim.Step{LearningRate: optim.ZeroRate})
			}
			for i := range w {
				if !(math.Abs(float64(w[i]-before[i])) < 1e-30) {
					t.Errorf("%s: %v became %v", e.name, before, w)
					break
				}
			}
			e.o.Update(w, slots, []float32{1, 0, -3}, optim.Step{GlobalStep: 9})
			for _, x := range append(slices.Clone(w), slots...) {
				if x-x != 0 {
					t.Errorf("%s: afterwards %v, %v", e.name, w, slots)
					break
				}
			}
		}
	}
}

// The corner where everything is 0.
func TestAllZeros(t *testing.T) {
	for _, e := range append(entries(),
		entry{name: "adagrad from 0", o: must(optim.NewAdagrad(1, 0, 0))},
		entry{name: "ftrl from 0", o: must(optim.NewFTRL(optim.FTRL{LearningRate: 1}))},
		entry{name: "group_ftrl from 0", o: must(optim.NewGroupFTRL(optim.GroupFTRL{LearningRate: 1}))},
		entry{name: "group_adagrad from 0", o: must(optim.NewGroupAdagrad(optim.GroupAdagrad{LearningRate: 1}))},
		entry{name: "dynamic from 0", o: must(optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{LearningRate: 1, Temperature: 1}))},
	) {
		w, slots := row(e.o, 0, 0)
		for range 2 {
			e.o.Update(w, slots, []float32{0, 0}, optim.Step{})
		}
		if w[0] != 0 || w[1] != 0 {
			t.Errorf("%s: %v", e.name, w)
		}
	}
}

func TestPolynomialDecay(t *testing.T) {
	for _, tc := range []struct {
		r    optim.PolynomialDecay
		step int64
		want float64
	}{
		{optim.PolynomialDecay{.1, 100, .01, 1, false}, 0, .1},
		{optim.PolynomialDecay{.1, 100, .01, 1, false}, -7, .1},
		{optim.PolynomialDecay{.1, 100, .01, 1, false}, 50, .055},
		{optim.PolynomialDecay{.1, 100, .01, 1, false}, 100, .01},
		{optim.PolynomialDecay{.1, 100, .01, 1, false}, 1 << 40, .01},
		{optim.PolynomialDecay{.1, 100, .01, 2, false}, 50, .0325},
		{optim.PolynomialDecay{.1, 100, 0, .5, false}, 75, .05},
		{optim.PolynomialDecay{.1, 100, .01, 1, true}, 0, .1},
		{optim.PolynomialDecay{.1, 100, .01, 1, true}, 100, .01},
		{optim.PolynomialDecay{.1, 100, .01, 1, true}, 150, .0325}, // of 200
		{optim.PolynomialDecay{.1, 100, .01, 1, true}, 201, .01 + .09*(1-201./300)},
	} {
		if got := float64(must(optim.NewPolynomialDecay(tc.r)).At(tc.step)); math.Abs(got-tc.want) > 1e-7 {
			t.Errorf("%+v at %d: %g, want %g", tc.r, tc.step, got, tc.want)
		}
	}
	if r := must(optim.NewConstantRate(.25)); r.At(0) != .25 || r.At(1<<50) != .25 {
		t.Error("constant")
	}
}

func TestStochasticRounding(t *testing.T) {
	sgd := must(optim.NewSGD(1))
	o := must(optim.NewStochasticRounding(sgd, 5))
	update := func(x float32, g float32, step int64) float32 {
		w := []float32{x + g}
		o.Update(w, nil, []float32{g}, optim.Step{GlobalStep: step})
		return w[0]
	}
	// The mean stays, and only the two neighbours are taken.
	for _, tc := range []struct{ x, lo, hi float32 }{
		{1.0003, 1, 1 + 0x1p-10}, {-1.0003, -1 - 0x1p-10, -1}, {1000.1, 1000, 1000.5}, {3e-8, 0, 0x1p-24}, {-1e-7, -2 * 0x1p-24, -0x1p-24},
		{0.99999, 1 - 0x1p-11, 1}, {60000.5, 60000, 60032}, {0x1p-14 - 0x1p-26, 0x1p-14 - 0x1p-24, 0x1p-14},
	} {
		const n = 20000
		sum := 0.
		for step := range int64(n) {
			got := update(tc.x, 0, step)
			if got != tc.lo && got != tc.hi {
				t.Fatalf("%g became %g", tc.x, got)
			}
			sum += float64(got-tc.lo) / float64(tc.hi-tc.lo)
		}
		if want := float64(tc.x-tc.lo) / float64(tc.hi-tc.lo); math.Abs(sum/n-want) > .02 {
			t.Errorf("%g goes up %.3f of the time, want %.3f", tc.x, sum/n, want)
		}
	}
	for x, want := range map[float32]float32{1.5: 1.5, 0: 0, 65504: 65504, 1e9: 65504, -1e9: -65504, -0x1p-24: -0x1p-24} {
		if got := update(x, 0, 1); got != want {
			t.Errorf("%g became %g", x, got)
		}
	}
	if got := update(float32(math.NaN()), 0, 1); got == got {
		t.Errorf("NaN became %g", got)
	}
	// The same update rounds the same way; another seed, step, position or gradient need not.
	w := make([]float32, 64)
	round := func(o optim.Optimizer, g float32, step int64) []float32 {
		for i := range w {
			w[i] = 1.0005 + g
		}
		grad := slices.Repeat([]float32{g}, len(w))
		o.Update(w, nil, grad, optim.Step{GlobalStep: step})
		return slices.Clone(w)
	}
	one := round(o, 0, 7)
	if !slices.Equal(one, round(o, 0, 7)) || slices.Equal(one, round(o, 0, 8)) || slices.Max(one) == slices.Min(one) ||
		slices.Equal(one, round(must(optim.NewStochasticRounding(sgd, 6)), 0, 7)) || slices.Equal(one, round(o, 0x1p-20, 7)) {
		t.Error("draws")
	}
	if fmt.Sprint(o.Dumps(3)) != "[{sgd []}]" || o.SlotSize(9) != 0 || optim.CheckDim(o, 9) != nil {
		t.Error("not the inner optimizer's slots")
	}
}

func TestAllRefuse(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for says, f := range map[string]func() error{
		"ftrl learning rate is 0":         func() error { _, err := optim.NewFTRL(optim.FTRL{}); return err },
		"ftrl learning rate is 1e-38":     func() error { _, err := optim.NewFTRL(optim.FTRL{LearningRate: 1e-38}); return err },
		"ftrl l1 regularization strength": func() error { _, err := optim.NewFTRL(optim.FTRL{LearningRate: 1, L1: -1}); return err },
		"group_ftrl beta is NaN":          func() error { _, err := optim.NewGroupFTRL(optim.GroupFTRL{LearningRate: 1, Beta: nan}); return err },
		"group_adagrad l2": func() error {
			_, err := optim.NewGroupAdagrad(optim.GroupAdagrad{LearningRate: 1, L2: inf})
			return err
		},
		"adam beta1 is 1: give a number from":  func() error { _, err := optim.NewAdam(optim.Adam{1, 1, .9, .1, 0, false}); return err },
		"adam epsilon is 0":                    func() error { _, err := optim.NewAdam(optim.Adam{1, .9, .9, 0, 0, false}); return err },
		"amsgrad beta2 is -1":                  func() error { _, err := optim.NewAMSGrad(optim.AMSGrad{1, .9, -1, .1, 0, false}); return err },
		"adadelta averaging ratio is NaN":      func() error { _, err := optim.NewAdadelta(optim.Adadelta{1, 0, nan, .1}); return err },
		"momentum momentum is 1.5":             func() error { _, err := optim.NewMomentum(optim.Momentum{LearningRate: 1, Momentum: 1.5}); return err },
		"moving_average momentum is +Inf":      func() error { _, err := optim.NewMovingAverage(inf); return err },
		"rmsprop weight decay":                 func() error { _, err := optim.NewRMSProp(optim.RMSProp{1, -1, .5}); return err },
		"rmspropv2 learning rate":              func() error { _, err := optim.NewRMSPropV2(optim.RMSPropV2{0, 0, .5}); return err },
		"batch_softmax learning rate is 2":     func() error { _, err := optim.NewBatchSoftmax(2); return err },
		"dynamic_wd_adagrad temperature":       func() error { _, err := optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{LearningRate: 1}); return err },
		"dc lambda is -1":                      func() error { _, err := optim.NewDC(-1, optim.SGD{1}); return err },
		"dc has no optimizer":                  func() error { _, err := optim.NewDC(1, nil); return err },
		"stochastic rounding has no optimizer": func() error { _, err := optim.NewStochasticRounding(nil, 1); return err },
		"constant learning rate":               func() error { _, err := optim.NewConstantRate(-1); return err },
		"polynomial decay over 0 steps": func() error {
			_, err := optim.NewPolynomialDecay(optim.PolynomialDecay{Initial: 1, Power: 1})
			return err
		},
		"polynomial decay power is 0": func() error {
			_, err := optim.NewPolynomialDecay(optim.PolynomialDecay{Initial: 1, Steps: 1})
			return err
		},
		"end learning rate is 0": func() error { _, err := optim.NewWarmUp(0, 3); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// Every optimizer of the original's list names slots that lie side by side, and its
// Update touches nothing beyond, whatever the lengths; wrong ones panic.
func TestSlotsAndLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, e := range entries() {
		for dim := 1; dim < 40; dim++ {
			size, named := e.o.SlotSize(dim), 0
			for _, d := range e.o.(optim.Dumper).Dumps(dim) {
				for _, p := range d.Planes {
					if p.From != named {
						t.Errorf("%s: plane %+v, expected from %d", e.name, p, named)
					}
					named = p.To
				}
			}
			if named != size {
				t.Errorf("%s: planes of %d slots, there are %d", e.name, named, size)
			}
			buf := make([]float32, 2*dim+size+30)
			for i := range buf {
				buf[i] = r.Float32()
			}
			want := slices.Clone(buf)
			w, slots, g := buf[10:10+dim], buf[20+dim:20+dim+size], buf[30+dim+size:]
			e.o.InitSlots(slots)
			e.o.Update(w, slots, g, optim.Step{})
			copy(want[10:], w)
			copy(want[20+dim:], slots)
			if !slices.Equal(want, buf) {
				t.Fatalf("%s: dim %d touched its neighbours or its gradient", e.name, dim)
			}
			for _, f := range []func(){
				func() { e.o.Update(w, append(slices.Clone(slots), 0), g, optim.Step{}) },
				func() { e.o.Update(w, slots, g[1:], optim.Step{}) },
			} {
				if !panics(f) {
					t.Errorf("%s: wrong lengths pass", e.name)
				}
			}
		}
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return
}

// A NaN gradient is never taken for a number.
func TestNaNGradients(t *testing.T) {
	for _, e := range entries() {
		w, slots := row(e.o, 1, 2)
		e.o.Update(w, slots, []float32{float32(math.NaN()), 1}, optim.Step{LearningRate: .1})
		seen := w[0] != w[0]
		for _, x := range slots {
			seen = seen || x != x
		}
		if !seen {
			t.Errorf("%s: no trace of a NaN in %v, %v", e.name, w, slots)
		}
	}
}

package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/kernels/optim"
)

// vector is a row in float64: weights, and slots by the names that checkpoints use.
type vector struct {
	w []float64
	s map[string][]float64
}

// model is an optimizer written down a second time, from its formula, in float64.
type model func(v vector, g []float64, lr float64, step int64)

func each(f func(v vector, i int, g, lr float64)) model {
	return func(v vector, g []float64, lr float64, _ int64) {
		for i := range g {
			f(v, i, g[i], lr)
		}
	}
}

func f64(x float32) float64 { return float64(x) }

type entry struct {
	name  string
	o     optim.Optimizer
	model model
	fixed float64 // the rate that no Step changes; 0: the Step's
}

func norm(x []float64) float64 {
	sum := 0.
	for _, v := range x {
		sum += v * v
	}
	return math.Sqrt(sum)
}

func must[O any](o O, err error) O {
	if err != nil {
		panic(err)
	}
	return o
}

// entries are all optimizers, each with its formula.
func entries() []entry {
	var all []entry
	all = append(all, entry{"sgd", must(optim.NewSGD(.3)), each(func(v vector, i int, g, lr float64) { v.w[i] -= lr * g }), 0})
	for _, wd := range []float32{0, .02} {
		all = append(all, adagrad(wd), adadelta(wd))
		for _, nesterov := range []bool{false, true} {
			all = append(all, adam(wd, nesterov), amsgrad(wd, nesterov), momentum(wd, nesterov))
		}
		all = append(all, rmsprop(wd), rmspropV2(wd))
		for _, l2 := range []float32{0, 30} {
			all = append(all, groupAdagrad(wd, l2))
		}
		for _, kind := range []decay{{}, {true, false, false}, {true, true, true}, {false, true, false}} {
			all = append(all, dynamicWdAdagrad(wd, kind))
		}
	}
	for _, compat := range []bool{false, true} {
		for _, l1 := range []float32{0, .5} {
			all = append(all, ftrl(compat, l1))
		}
	}
	for _, l2 := range []float32{0, .3, 30} {
		all = append(all, groupFTRL(l2))
	}
	return append(all, entry{"moving_average", must(optim.NewMovingAverage(.9)), each(func(v vector, i int, g, _ float64) {
		v.w[i] += (1 - f64(.9)) * (g - v.w[i])
	}), 1})
}

func adagrad(wd float32) entry {
	return entry{fmt.Sprint("adagrad", wd), must(optim.NewAdagrad(.05, .1, wd)), each(func(v vector, i int, g, lr float64) {
		g += f64(wd) * v.w[i]
		v.s["norm"][i] += g * g
		v.w[i] -= lr * g / math.Sqrt(v.s["norm"][i])
	}), 0}
}

func adadelta(wd float32) entry {
	return entry{fmt.Sprint("adadelta", wd), must(optim.NewAdadelta(optim.Adadelta{.4, wd, .9, .01})), each(func(v vector, i int, g, lr float64) {
		g += f64(wd) * v.w[i]
		rho, eps := f64(.9), f64(.01)
		a, u := v.s["accum"], v.s["accum_update"]
		a[i] = a[i]*rho + g*g*(1-rho)
		delta := math.Sqrt((u[i]+eps)/(a[i]+eps)) * g
		v.w[i] -= lr * delta
		u[i] = u[i]*rho + delta*delta*(1-rho)
	}), 0}
}

// moments is the formula of Adam, divided by the root of the plane den.
func moments(wd float32, nesterov bool, den string) model {
	return func(v vector, g []float64, lr float64, _ int64) {
		b1, b2, eps := f64(.9), f64(.99), f64(.001)
		p1, p2 := v.s["beta1_power"], v.s["beta2_power"]
		alpha := lr * math.Sqrt(1-p2[0]) / (1 - p1[0])
		for i, d := range g {
			d += f64(wd) * v.w[i]
			m, sq := v.s["m"], v.s["v"]
			m[i] = b1*m[i] + (1-b1)*d
			sq[i] = b2*sq[i] + (1-b2)*d*d
			if den == "vhat" {
				v.s[den][i] = math.Max(v.s[den][i], sq[i])
			}
			top := m[i]
			if nesterov {
				top = b1*m[i] + (1-b1)*d
			}
			v.w[i] -= alpha * top / (math.Sqrt(v.s[den][i]) + eps)
		}
		p1[0] *= b1
		p2[0] *= b2
	}
}

func adam(wd float32, nesterov bool) entry {
	return entry{fmt.Sprint("adam", wd, nesterov), must(optim.NewAdam(optim.Adam{.03, .9, .99, .001, wd, nesterov})), moments(wd, nesterov, "v"), 0}
}

func amsgrad(wd float32, nesterov bool) entry {
	return entry{fmt.Sprint("amsgrad", wd, nesterov), must(optim.NewAMSGrad(optim.AMSGrad{.03, .9, .99, .001, wd, nesterov})), moments(wd, nesterov, "vhat"), 0}
}

func momentum(wd float32, nesterov bool) entry {
	return entry{fmt.Sprint("momentum", wd, nesterov), must(optim.NewMomentum(optim.Momentum{.03, wd, .9, nesterov})), each(func(v vector, i int, g, lr float64) {
		n := v.s["n"]
		before := n[i]
		n[i] = f64(.9)*n[i] - lr*(g+f64(wd)*v.w[i])
		if nesterov {
			v.w[i] += -f64(.9)*before + (1+f64(.9))*n[i]
		} else {
			v.w[i] += n[i]
		}
	}), 0}
}

// square is the formula of RMSProp, to whose mean a square adds its share.
func square(wd float32, share float64) model {
	return each(func(v vector, i int, g, lr float64) {
		g += f64(wd) * v.w[i]
		v.s["n"][i] = f64(.8)*v.s["n"][i] + share*g*g
		v.w[i] -= g * lr / (math.Sqrt(v.s["n"][i]) + 1)
	})
}

func rmsprop(wd float32) entry {
	return entry{fmt.Sprint("rmsprop", wd), must(optim.NewRMSProp(optim.RMSProp{.05, wd, .8})), square(wd, 1-f64(.8)), f64(.05)}
}

func rmspropV2(wd float32) entry {
	return entry{fmt.Sprint("rmspropv2", wd), must(optim.NewRMSPropV2(optim.RMSPropV2{.05, wd, .8})), square(wd, 1), 0}
}

func groupAdagrad(wd, l2 float32) entry {
	return entry{fmt.Sprint("group_adagrad", wd, l2), must(optim.NewGroupAdagrad(optim.GroupAdagrad{.05, .3, .1, l2, wd})), func(v vector, g []float64, lr float64, _ int64) {
		most, y := 0., make([]float64, len(g))
		for i := range g {
			y[i] = g[i] + f64(wd)*v.w[i]
			most = math.Max(most, y[i]*y[i])
		}
		s := v.s["grad_square_sum"]
		s[0] += most
		e := lr / (f64(.3) + math.Sqrt(s[0]))
		for i := range g {
			y[i] -= v.w[i] / e
		}
		for i := range g {
			v.w[i] = 0
			if n := norm(y); n >= f64(l2) && n > 0 {
				v.w[i] = -e * (n - f64(l2)) / n * y[i]
			}
		}
	}, 0}
}

// decay is how the weight decay of dynamicWdAdagrad goes.
type decay struct{ dynamic, decoupled, flip bool }

func dynamicWdAdagrad(wd float32, kind decay) entry {
	return entry{fmt.Sprint("dynamic_wd_adagrad", wd, kind), must(optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{.05, .1, wd, 3, kind.dynamic, kind.decoupled, kind.flip})), func(v vector, g []float64, lr float64, step int64) {
		decay := f64(wd)
		if gone := math.Exp(-(float64(step) - v.s["last_update_step"][0]) / 3); kind.flip && kind.dynamic {
			decay *= gone
		} else if kind.dynamic {
			decay *= 1 - gone
		}
		v.s["last_update_step"][0] = float64(step)
		for i, d := range g {
			x := v.w[i]
			if !kind.decoupled {
				d += decay * x
			}
			v.s["norm"][i] += d * d
			v.w[i] = x - lr*d/math.Sqrt(v.s["norm"][i])
			if kind.decoupled {
				v.w[i] -= lr * decay * x
			}
		}
	}, 0}
}

func ftrl(compat bool, l1 float32) entry {
	return entry{fmt.Sprint("ftrl", compat, l1), must(optim.NewFTRL(optim.FTRL{.1, .4, .1, l1, .2, compat})), each(func(v vector, i int, g, lr float64) {
		n, z := v.s["norm"], v.s["zero"]
		next := n[i] + g*g
		sigma := (math.Sqrt(next) - math.Sqrt(n[i])) / lr
		z[i] += g - sigma*v.w[i]
		n[i] = next
		s := 1.
		if compat && z[i] >= 0 {
			s = 0
		} else if !compat && z[i] < 0 {
			s = -1
		}
		if v.w[i] = 0; math.Abs(z[i]) > f64(l1) {
			v.w[i] = lr * (s*f64(l1) - z[i]) / (math.Sqrt(next) + f64(.4) + f64(.2)*lr)
		}
	}), 0}
}

func groupFTRL(l2 float32) entry {
	return entry{fmt.Sprint("group_ftrl", l2), must(optim.NewGroupFTRL(optim.GroupFTRL{.1, 1, 0, .05, l2})), func(v vector, g []float64, lr float64, _ int64) {
		n, z, soft := v.s["norm"], v.s["zero"], make([]float64, len(g))
		for i := range g {
			z[i] += g[i] - (math.Sqrt(n[i]+g[i]*g[i])-math.Sqrt(n[i]))/lr*v.w[i]
			n[i] += g[i] * g[i]
			soft[i] = math.Max(z[i]-f64(.05), 0) + math.Min(z[i]+f64(.05), 0)
		}
		keep := math.Max(0, norm(soft)-f64(l2)*math.Sqrt(float64(len(g))))
		for i := range g {
			if v.w[i] = 0; keep > 0 {
				v.w[i] = -lr * soft[i] * keep / norm(soft) / (1 + math.Sqrt(n[i]))
			}
		}
	}, 0}
}

// read is the float64 view of a row, by the planes that o names.
func read(o optim.Optimizer, w, slots []float32) vector {
	v := vector{s: map[string][]float64{}}
	for _, x := range w {
		v.w = append(v.w, f64(x))
	}
	for _, d := range o.(optim.Dumper).Dumps(len(w)) {
		for _, p := range d.Planes {
			if p.Integer {
				v.s[p.Name] = []float64{float64(optim.Int(slots[p.From:p.To]))}
				continue
			}
			for _, x := range slots[p.From:p.To] {
				v.s[p.Name] = append(v.s[p.Name], f64(x))
			}
		}
	}
	return v
}

// Each step starts from the same float32 row, so what differs is one step's rounding.
func TestAgainstFloat64(t *testing.T) {
	for _, e := range entries() {
		t.Run(e.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			for _, dim := range []int{1, 4, 37} {
				w, slots, g := make([]float32, dim), make([]float32, e.o.SlotSize(dim)), make([]float32, dim)
				e.o.InitSlots(slots)
				for i := range w {
					w[i] = r.Float32() - .5
				}
				for step := range int64(200) {
					at := optim.Step{LearningRate: .02 + r.Float32()/4, GlobalStep: step * 3}
					lr := f64(at.LearningRate)
					if e.fixed != 0 {
						lr = e.fixed
					}
					scale := math.Pow(10, float64(r.IntN(6)-4))
					g64 := make([]float64, dim)
					for i := range g {
						g[i] = float32(r.NormFloat64() * scale)
						if r.IntN(10) == 0 {
							g[i] = 0
						}
						g64[i] = f64(g[i])
					}
					want, before := read(e.o, w, slots), read(e.o, w, slots)
					e.model(want, g64, lr, at.GlobalStep)
					e.o.Update(w, slots, g, at)
					got := read(e.o, w, slots)
					compare(t, "weight", step, got.w, want.w, before.w)
					for name := range want.s {
						compare(t, name, step, got.s[name], want.s[name], before.s[name])
					}
				}
			}
		})
	}
}

// compare allows eight roundings of the largest number that a step has touched.
func compare(t *testing.T, name string, step int64, got, want, before []float64) {
	t.Helper()
	for i := range want {
		size := math.Max(math.Abs(before[i]), math.Max(math.Abs(want[i]), math.Abs(want[i]-before[i])))
		if !(math.Abs(got[i]-want[i]) <= size*8*0x1p-24+1e-40) {
			t.Fatalf("step %d, %s %d: %.9g, want %.9g (was %.9g)", step, name, i, got[i], want[i], before[i])
		}
	}
}

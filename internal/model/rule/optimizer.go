package rule

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/optim"
)

// Optimizer builds what o and rate, which may be nil, declare; seed keys the draws of
// stochastic rounding.
func Optimizer(o *model.Optimizer, rate *model.LearningRate, seed uint64) (optim.Optimizer, error) {
	declared, err := kind(o, seed)
	if err != nil {
		return nil, err
	}
	built, warmup := declared.Optimizer, declared.warmup
	schedule, err := learningRate(rate)
	switch {
	case err != nil:
		return nil, err
	case schedule != nil && warmup > 0:
		return nil, fmt.Errorf("warmup_steps and a learning_rate function are both given: leave one of them out")
	case warmup > math.MaxInt64:
		return nil, fmt.Errorf("warmup_steps is %d: give at most %d", warmup, int64(math.MaxInt64))
	case warmup > 0:
		if schedule, err = optim.NewWarmUp(declared.rate, int64(warmup)); err != nil {
			return nil, err
		}
	}
	if schedule != nil {
		if built, err = optim.NewScheduled(built, schedule); err != nil {
			return nil, err
		}
	}
	if o.GetStochasticRoundingFloat16() {
		return optim.NewStochasticRounding(built, seed)
	}
	return built, nil
}

// alone is an optimizer as its kind declares it, and the rate that it climbs to in how many steps.
type alone struct {
	optim.Optimizer
	rate   float32
	warmup uint64
}

// kind builds the optimizer that o names, without what o says of all kinds.
func kind(o *model.Optimizer, seed uint64) (a alone, err error) {
	switch k := o.GetKind().(type) {
	case *model.Optimizer_Adagrad:
		m := k.Adagrad
		a.rate, a.warmup = m.GetLearningRate(), m.GetWarmupSteps()
		a.Optimizer, err = optim.NewAdagrad(a.rate, m.GetInitialAccumulatorValue(), m.GetWeightDecay())
	case *model.Optimizer_Sgd:
		a.rate, a.warmup = k.Sgd.GetLearningRate(), k.Sgd.GetWarmupSteps()
		a.Optimizer, err = optim.NewSGD(a.rate)
	case *model.Optimizer_Ftrl:
		return ftrl(given(k.Ftrl))
	case *model.Optimizer_DynamicWdAdagrad:
		return dynamicWdAdagrad(given(k.DynamicWdAdagrad))
	case *model.Optimizer_Adadelta:
		return adadelta(given(k.Adadelta))
	case *model.Optimizer_Adam:
		return adam(given(k.Adam))
	case *model.Optimizer_Amsgrad:
		return amsgrad(given(k.Amsgrad))
	case *model.Optimizer_Momentum:
		return momentum(given(k.Momentum))
	case *model.Optimizer_MovingAverage:
		a.Optimizer, err = optim.NewMovingAverage(or(given(k.MovingAverage).Momentum, 0.9))
	case *model.Optimizer_Rmsprop:
		m := given(k.Rmsprop)
		a.rate = or(m.LearningRate, 0.01)
		a.Optimizer, err = optim.NewRMSProp(optim.RMSProp{LearningRate: a.rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9)})
	case *model.Optimizer_Rmspropv2:
		m := given(k.Rmspropv2)
		a.rate = or(m.LearningRate, 0.01)
		a.Optimizer, err = optim.NewRMSPropV2(optim.RMSPropV2{LearningRate: a.rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9)})
	case *model.Optimizer_Dc:
		inner, err := Optimizer(k.Dc.GetOptimizer(), nil, seed)
		if err != nil {
			return a, fmt.Errorf("dc: %w", err)
		}
		a.Optimizer, err = optim.NewDC(k.Dc.GetLambda(), inner)
		return a, err
	case *model.Optimizer_GroupFtrl:
		return groupFTRL(given(k.GroupFtrl))
	case *model.Optimizer_BatchSoftmax:
		a.rate = or(given(k.BatchSoftmax).LearningRate, 0.1)
		a.Optimizer, err = optim.NewBatchSoftmax(a.rate)
	case *model.Optimizer_GroupAdagrad:
		return groupAdagrad(given(k.GroupAdagrad))
	default:
		err = fmt.Errorf("no optimizer: declare adagrad, sgd or another one")
	}
	return a, err
}

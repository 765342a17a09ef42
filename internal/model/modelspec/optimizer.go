package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/optim"
)

// optimizer builds what o and rate, which may be nil, declare; seed keys the draws of
// stochastic rounding.
func optimizer(o *model.Optimizer, rate *model.LearningRate, seed uint64) (optim.Optimizer, error) {
	built, own, warmup, err := rule(o, seed)
	if err != nil {
		return nil, err
	}
	schedule, err := learningRate(rate)
	switch {
	case err != nil:
		return nil, err
	case schedule != nil && warmup > 0:
		return nil, fmt.Errorf("warmup_steps and a learning_rate function are both given: leave one of them out")
	case warmup > math.MaxInt64:
		return nil, fmt.Errorf("warmup_steps is %d: give at most %d", warmup, int64(math.MaxInt64))
	case warmup > 0:
		if schedule, err = optim.NewWarmUp(own, int64(warmup)); err != nil {
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

// rule builds the optimizer alone, and says which rate it climbs to in how many steps.
func rule(o *model.Optimizer, seed uint64) (built optim.Optimizer, rate float32, warmup uint64, err error) {
	switch k := o.GetKind().(type) {
	case *model.Optimizer_Adagrad:
		m := k.Adagrad
		rate, warmup = m.GetLearningRate(), m.GetWarmupSteps()
		built, err = optim.NewAdagrad(rate, m.GetInitialAccumulatorValue(), m.GetWeightDecay())
	case *model.Optimizer_Sgd:
		rate, warmup = k.Sgd.GetLearningRate(), k.Sgd.GetWarmupSteps()
		built, err = optim.NewSGD(rate)
	case *model.Optimizer_Ftrl:
		m := given(k.Ftrl)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewFTRL(optim.FTRL{
			LearningRate: rate, Beta: m.GetBeta(), InitialAccumulator: or(m.InitialAccumulatorValue, 0.1),
			L1: m.GetL1(), L2: m.GetL2(), Compat: m.GetCompat(),
		})
	case *model.Optimizer_DynamicWdAdagrad:
		m := given(k.DynamicWdAdagrad)
		rate, warmup = or(m.LearningRate, 0.001), m.GetWarmupSteps()
		built, err = optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{
			LearningRate: rate, InitialAccumulator: or(m.InitialAccumulatorValue, 0.1), WeightDecay: m.GetWeightDecay(),
			Temperature: or(m.DynamicWdTemperature, 1), Dynamic: m.GetEnableDynamicWd(),
			Decoupled: m.GetDecoupleWeightDecay(), Flip: m.GetFlipDirection(),
		})
	case *model.Optimizer_Adadelta:
		m := given(k.Adadelta)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewAdadelta(optim.Adadelta{
			LearningRate: rate, WeightDecay: m.GetWeightDecay(), AveragingRatio: or(m.AveragingRatio, 0.9), Epsilon: or(m.Epsilon, 0.01),
		})
	case *model.Optimizer_Adam:
		m := given(k.Adam)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewAdam(optim.Adam{
			LearningRate: rate, Beta1: or(m.Beta1, 0.9), Beta2: or(m.Beta2, 0.99), Epsilon: or(m.Epsilon, 0.01),
			WeightDecay: m.GetWeightDecay(), Nesterov: m.GetUseNesterov(),
		})
	case *model.Optimizer_Amsgrad:
		m := given(k.Amsgrad)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewAMSGrad(optim.AMSGrad{
			LearningRate: rate, Beta1: or(m.Beta1, 0.9), Beta2: or(m.Beta2, 0.99), Epsilon: or(m.Epsilon, 0.01),
			WeightDecay: m.GetWeightDecay(), Nesterov: m.GetUseNesterov(),
		})
	case *model.Optimizer_Momentum:
		m := given(k.Momentum)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewMomentum(optim.Momentum{
			LearningRate: rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9), Nesterov: m.GetUseNesterov(),
		})
	case *model.Optimizer_MovingAverage:
		built, err = optim.NewMovingAverage(or(given(k.MovingAverage).Momentum, 0.9))
	case *model.Optimizer_Rmsprop:
		m := given(k.Rmsprop)
		rate = or(m.LearningRate, 0.01)
		built, err = optim.NewRMSProp(optim.RMSProp{LearningRate: rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9)})
	case *model.Optimizer_Rmspropv2:
		m := given(k.Rmspropv2)
		rate = or(m.LearningRate, 0.01)
		built, err = optim.NewRMSPropV2(optim.RMSPropV2{LearningRate: rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9)})
	case *model.Optimizer_Dc:
		inner, err := optimizer(k.Dc.GetOptimizer(), nil, seed)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("dc: %w", err)
		}
		built, err = optim.NewDC(k.Dc.GetLambda(), inner)
		return built, 0, 0, err
	case *model.Optimizer_GroupFtrl:
		m := given(k.GroupFtrl)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewGroupFTRL(optim.GroupFTRL{
			LearningRate: rate, Beta: or(m.Beta, 1), InitialAccumulator: m.GetInitialAccumulatorValue(), L1: m.GetL1(), L2: m.GetL2(),
		})
	case *model.Optimizer_BatchSoftmax:
		rate = or(given(k.BatchSoftmax).LearningRate, 0.1)
		built, err = optim.NewBatchSoftmax(rate)
	case *model.Optimizer_GroupAdagrad:
		m := given(k.GroupAdagrad)
		rate, warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
		built, err = optim.NewGroupAdagrad(optim.GroupAdagrad{
			LearningRate: rate, Beta: m.GetBeta(), InitialAccumulator: or(m.InitialAccumulatorValue, 0.1),
			L2: m.GetL2(), WeightDecay: m.GetWeightDecay(),
		})
	default:
		err = fmt.Errorf("no optimizer: declare adagrad, sgd or another one")
	}
	return built, rate, warmup, err
}

// learningRate is the declared function, nil where there is none.
func learningRate(r *model.LearningRate) (optim.Rate, error) {
	if r == nil {
		return nil, nil
	}
	switch k := r.GetKind().(type) {
	case *model.LearningRate_Constant:
		return optim.NewConstantRate(k.Constant)
	case *model.LearningRate_PolynomialDecay:
		d := given(k.PolynomialDecay)
		if d.GetDecaySteps() > math.MaxInt64 {
			return nil, fmt.Errorf("decay_steps is %d: give at most %d", d.GetDecaySteps(), int64(math.MaxInt64))
		}
		return optim.NewPolynomialDecay(optim.PolynomialDecay{
			Initial: d.GetInitialLearningRate(), Steps: int64(d.GetDecaySteps()),
			End: or(d.EndLearningRate, 0.0001), Power: or(d.Power, 1), Cycle: d.GetCycle(),
		})
	}
	return nil, fmt.Errorf("the learning_rate function is empty: give constant or polynomial_decay, or leave it out")
}

// given is m, or an empty message where a builder left it nil.
func given[M any](m *M) *M {
	if m == nil {
		return new(M)
	}
	return m
}

// or is what v points to, or the default.
func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

package rule

import (
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/optim"
)

func ftrl(m *model.Ftrl) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewFTRL(optim.FTRL{
		LearningRate: a.rate, Beta: m.GetBeta(), InitialAccumulator: or(m.InitialAccumulatorValue, 0.1),
		L1: m.GetL1(), L2: m.GetL2(), Compat: m.GetCompat(),
	})
	return a, err
}

func groupFTRL(m *model.GroupFtrl) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewGroupFTRL(optim.GroupFTRL{
		LearningRate: a.rate, Beta: or(m.Beta, 1), InitialAccumulator: m.GetInitialAccumulatorValue(), L1: m.GetL1(), L2: m.GetL2(),
	})
	return a, err
}

func dynamicWdAdagrad(m *model.DynamicWdAdagrad) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.001), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewDynamicWdAdagrad(optim.DynamicWdAdagrad{
		LearningRate: a.rate, InitialAccumulator: or(m.InitialAccumulatorValue, 0.1), WeightDecay: m.GetWeightDecay(),
		Temperature: or(m.DynamicWdTemperature, 1), Dynamic: m.GetEnableDynamicWd(),
		Decoupled: m.GetDecoupleWeightDecay(), Flip: m.GetFlipDirection(),
	})
	return a, err
}

func groupAdagrad(m *model.GroupAdagrad) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewGroupAdagrad(optim.GroupAdagrad{
		LearningRate: a.rate, Beta: m.GetBeta(), InitialAccumulator: or(m.InitialAccumulatorValue, 0.1),
		L2: m.GetL2(), WeightDecay: m.GetWeightDecay(),
	})
	return a, err
}

func adadelta(m *model.Adadelta) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewAdadelta(optim.Adadelta{
		LearningRate: a.rate, WeightDecay: m.GetWeightDecay(), AveragingRatio: or(m.AveragingRatio, 0.9), Epsilon: or(m.Epsilon, 0.01),
	})
	return a, err
}

func adam(m *model.Adam) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewAdam(optim.Adam{
		LearningRate: a.rate, Beta1: or(m.Beta1, 0.9), Beta2: or(m.Beta2, 0.99), Epsilon: or(m.Epsilon, 0.01),
		WeightDecay: m.GetWeightDecay(), Nesterov: m.GetUseNesterov(),
	})
	return a, err
}

func amsgrad(m *model.Amsgrad) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewAMSGrad(optim.AMSGrad{
		LearningRate: a.rate, Beta1: or(m.Beta1, 0.9), Beta2: or(m.Beta2, 0.99), Epsilon: or(m.Epsilon, 0.01),
		WeightDecay: m.GetWeightDecay(), Nesterov: m.GetUseNesterov(),
	})
	return a, err
}

func momentum(m *model.Momentum) (a alone, err error) {
	a.rate, a.warmup = or(m.LearningRate, 0.01), m.GetWarmupSteps()
	a.Optimizer, err = optim.NewMomentum(optim.Momentum{
		LearningRate: a.rate, WeightDecay: m.GetWeightDecay(), Momentum: or(m.Momentum, 0.9), Nesterov: m.GetUseNesterov(),
	})
	return a, err
}

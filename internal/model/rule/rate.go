package rule

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/optim"
)

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

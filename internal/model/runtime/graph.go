package runtime

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/nn"
)

// outputs says where a step's results are among those of its program: the tasks' scores, the loss, that
// of each task, those that layers add, the gradients by the tensors of rows, and those by the variables.
type outputs struct{ loss, losses, added, slopes, dense int }

func outputsOf(m *modelspec.Model) outputs {
	n := len(m.Tasks)
	slopes := 2*n + 1 + len(m.Added)
	return outputs{loss: n, losses: n + 1, added: 2*n + 1, slopes: slopes, dense: slopes + m.Tensors}
}

// programs compiles m for training and for scoring; both know all variables.
func programs(m *modelspec.Model) (train, score *nn.Program, err error) {
	if train, err = compile(m.Train); err != nil {
		return nil, nil, err
	}
	score, err = compile(m.Serve)
	return train, score, err
}

func compile(g *graph.Graph) (*nn.Program, error) {
	p, err := nn.Compile(g, nn.Options{})
	if err != nil {
		return nil, fmt.Errorf("the model cannot be computed: %w", err)
	}
	return p, nil
}

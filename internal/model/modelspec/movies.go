package modelspec

import "github.com/monolith-go/monolith/events/model"

// MovieRanking is the ready model of the demo: will this user rate this movie 3.5 or
// more? An embedding of 32 for each of the two, and a tower of 256, 64 and 1.
func MovieRanking() *model.ModelSpec {
	adagrad := func() *model.Optimizer {
		return &model.Optimizer{Kind: &model.Optimizer_Adagrad{Adagrad: &model.Adagrad{
			LearningRate: 0.05, InitialAccumulatorValue: 0.1,
		}}}
	}
	table := func(name string) *model.Table {
		return &model.Table{
			Name: name, Dim: 32, Optimizer: adagrad(),
			Initializer: &model.Initializer{Kind: &model.Initializer_RandomUniform{
				RandomUniform: &model.RandomUniform{Min: -0.05, Max: 0.05},
			}},
		}
	}
	return &model.ModelSpec{
		Name: "movies",
		Features: []*model.Feature{
			{Name: "user", Field: "userId", Slot: 1, Table: "user"},
			{Name: "movie", Field: "movieId", Slot: 2, Table: "movie"},
		},
		Tables: []*model.Table{table("user"), table("movie")},
		Layers: []*model.DenseLayer{
			{Name: "dense_0", Units: 256, Activation: model.Activation_RELU},
			{Name: "dense_1", Units: 64, Activation: model.Activation_RELU},
			{Name: "dense_2", Units: 1, Activation: model.Activation_SIGMOID},
		},
		DenseOptimizer: adagrad(),
		Label:          &model.Label{Field: "rating", Threshold: 3.5},
		Seed:           1,
	}
}

package trainertest

import (
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// SmallSpec is movie ranking with tables and layers that cost nothing.
func SmallSpec() *model.ModelSpec {
	spec := modelspec.MovieRanking()
	for _, t := range spec.Tables {
		t.Dim = 4
	}
	spec.Layers = spec.Layers[1:]
	spec.Layers[0].Units = 8
	return spec
}

// ListsSpec has several ids of a feature, a crossed one, a float, and two tasks of which one has a mask.
func ListsSpec() *model.ModelSpec {
	spec := SmallSpec()
	proto := spec.Tables[0]
	spec.Tables = nil
	spec.Features = []*model.Feature{
		{Name: "user", Field: "user", Slot: 1, Table: "user"},
		{Name: "genres", Field: "genres", Slot: 3, Table: "genre", Pooling: model.Feature_MEAN, Missing: model.Feature_EMPTY, Ids: model.Feature_HASH},
		{Name: "movie", Field: "movie", Slot: 2, Table: "movie"},
		{Name: "seen", Field: "history", Slot: 2, Table: "movie", Missing: model.Feature_EMPTY},
		{Name: "taste", Slot: 4, Table: "genre", Cross: []string{"user", "movie"}},
	}
	for _, name := range []string{"user", "genre", "movie"} {
		spec.Tables = append(spec.Tables, &model.Table{Name: name, Dim: 2, Optimizer: proto.Optimizer, Initializer: proto.Initializer})
	}
	spec.Floats = []*model.Float{{Name: "age", Field: "age", Missing: model.Feature_DEFAULT, Default: 30}}
	spec.Outputs = []*model.Output{{Name: "x", Slices: []string{"*"}}}
	spec.Layers = []*model.DenseLayer{
		{Name: "like", Units: 1, Inputs: []string{"x", "age"}},
		{Name: "stars", Units: 1, Inputs: []string{"x", "age"}},
	}
	spec.Label = nil
	spec.Tasks = []*model.Task{
		{Name: "like", Logit: "like", Label: &model.Label{Field: "stars", Threshold: 3}, MaskField: "seen"},
		{Name: "stars", Logit: "stars", Label: &model.Label{Field: "stars", Raw: true}, Loss: model.Task_MSE, WeightField: "w"},
	}
	return spec
}

// WideSpec is SmallSpec with two layers before, whose kernels take 10 bands, more than one
// message holds.
func WideSpec() *model.ModelSpec {
	spec := SmallSpec()
	spec.Layers = append([]*model.DenseLayer{
		{Name: "wide", Units: 2048, Activation: model.Activation_RELU}, {Name: "narrow", Units: 1100, Activation: model.Activation_RELU},
	}, spec.Layers...)
	return spec
}

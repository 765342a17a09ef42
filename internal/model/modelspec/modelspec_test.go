package modelspec_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/modelspec/modelspectest"
)

func TestFID(t *testing.T) {
	for _, tc := range []struct {
		slot uint32
		id   int64
		want int64
	}{
		{0, 5, 5},
		{1, 0, 1 << 48},
		{2, 193609, 2<<48 | 193609},
		{1, -1, 1<<48 | (1<<48 - 1)},
		{modelspec.MaxSlot, -1, math.MaxInt64},
		{3, 1<<48 + 7, 3<<48 | 7},
	} {
		got := modelspec.FID(tc.slot, tc.id)
		if got != tc.want || modelspec.SlotOf(got) != tc.slot {
			t.Errorf("FID(%d, %d) = %d, want %d", tc.slot, tc.id, got, tc.want)
		}
	}
}

func TestShardOf(t *testing.T) {
	for _, tc := range []struct {
		fid    int64
		shards int
		want   int
	}{{7, 1, 0}, {7, 2, 1}, {-7, 4, 1}, {math.MinInt64, 3, 1}, {math.MaxInt64, 3, 1}} {
		if got := modelspec.ShardOf(tc.fid, tc.shards); got != tc.want {
			t.Errorf("ShardOf(%d, %d) = %d, want %d", tc.fid, tc.shards, got, tc.want)
		}
	}
}

func TestMovieRanking(t *testing.T) {
	spec := modelspec.MovieRanking()
	if err := modelspec.Validate(spec); err != nil {
		t.Fatal(err)
	}
	var got []string
	var shards []int
	for i, v := range modelspec.Variables(spec) {
		size := 1
		for _, d := range v.Shape {
			size *= int(d)
		}
		if size != v.Size || len(modelspec.InitVariable(spec, v)) != size {
			t.Errorf("%s: size %d of shape %v", v.Name, v.Size, v.Shape)
		}
		got = append(got, v.Name)
		shards = append(shards, modelspec.VariableShard(i, 4))
	}
	if want := []string{"dense_0/kernel", "dense_0/bias", "dense_1/kernel", "dense_1/bias", "dense_2/kernel", "dense_2/bias"}; !slices.Equal(got, want) {
		t.Errorf("variables %v", got)
	}
	if !slices.Equal(shards, []int{0, 1, 2, 3, 0, 1}) {
		t.Errorf("shards %v", shards)
	}
	if v := modelspec.Variables(spec)[0]; !slices.Equal(v.Shape, []uint32{64, 256}) || modelspec.InputSize(spec) != 64 {
		t.Errorf("first kernel %v", v.Shape)
	}
	tower, err := modelspectest.NewTower(spec)
	if err != nil || tower.In() != 64 {
		t.Errorf("tower: %v", err)
	}
	tab, err := modelspec.NewTable(spec, "movie")
	if err != nil || tab.Dim() != 32 || tab.SlotSize() != 32 || tab.Name() != "movie" {
		t.Errorf("table: %v", err)
	}
	if _, err := modelspec.NewTable(spec, "films"); err == nil || !strings.Contains(err.Error(), `"films"`) {
		t.Errorf("unknown table: %v", err)
	}
	for value, want := range map[float64]float32{3.5: 1, 5: 1, 3.4999: 0, 0: 0, math.NaN(): 0} {
		if got := modelspec.Labelled(spec.GetLabel(), value); got != want {
			t.Errorf("label of %g is %g", value, got)
		}
	}
}

func TestInitVariable(t *testing.T) {
	spec := modelspec.MovieRanking()
	vs := modelspec.Variables(spec)
	kernel := modelspec.InitVariable(spec, vs[0])
	limit := float32(math.Sqrt(6. / 320))
	var sum, square float64
	for _, x := range kernel {
		if x < -limit || x > limit {
			t.Fatalf("%g is beyond ±%g", x, limit)
		}
		sum += float64(x)
		square += float64(x) * float64(x)
	}
	n := float64(len(kernel))
	if mean, variance := sum/n, square/n; math.Abs(mean) > 0.003 || math.Abs(variance/(2./320)-1) > 0.05 {
		t.Errorf("mean %g, variance %g, want 0 and %g", mean, variance, 2./320)
	}
	if slices.Max(modelspec.InitVariable(spec, vs[1])) != 0 {
		t.Error("a bias does not start at 0")
	}
	if !slices.Equal(kernel, modelspec.InitVariable(modelspec.MovieRanking(), vs[0])) {
		t.Error("the same spec gives other values")
	}
	other := modelspec.MovieRanking()
	other.Seed = 2
	renamed := vs[0]
	renamed.Name = "x/kernel"
	if slices.Equal(kernel, modelspec.InitVariable(other, vs[0])) || slices.Equal(kernel, modelspec.InitVariable(spec, renamed)) {
		t.Error("seed or name does not count")
	}
}

func TestValidate(t *testing.T) {
	type spec = model.ModelSpec
	nan := float32(math.NaN())
	for says, change := range map[string]func(*spec){
		`the model has no name`:                func(s *spec) { s.Name = "" },
		`a name of 129 bytes`:                  func(s *spec) { s.Name = strings.Repeat("x", 129) },
		`control characters`:                   func(s *spec) { s.Name = "a\nb" },
		`no features`:                          func(s *spec) { s.Features = nil },
		`1025 features`:                        func(s *spec) { s.Features = make([]*model.Feature, 1025) },
		`feature "user" is declared twice`:     func(s *spec) { s.Features[1].Name = "user" },
		`slot 1, which feature "user" has too`: func(s *spec) { s.Features[1].Slot = 1 },
		`has slot 0`:                           func(s *spec) { s.Features[0].Slot = 0 },
		`has slot 32768`:                       func(s *spec) { s.Features[0].Slot = 32768 },
		`feature "user" reads no field`:        func(s *spec) { s.Features[0].Field = "" },
		`feature "user" reads table "x", which is not declared`:  func(s *spec) { s.Features[0].Table = "x" },
		`table "user" is read by no feature`:                     func(s *spec) { s.Features[0].Table = "movie" },
		`table "movie" is declared twice`:                        func(s *spec) { s.Tables[0].Name = "movie" },
		`no tables`:                                              func(s *spec) { s.Tables = nil },
		`table "user" has dim 0`:                                 func(s *spec) { s.Tables[0].Dim = 0 },
		`table "user" has dim 4097`:                              func(s *spec) { s.Tables[0].Dim = 4097 },
		`table "user": no optimizer`:                             func(s *spec) { s.Tables[0].Optimizer = nil },
		`table "user": no initializer`:                           func(s *spec) { s.Tables[0].Initializer = &model.Initializer{} },
		`table "user": optim: adagrad learning rate is 0`:        func(s *spec) { s.Tables[0].Optimizer.GetAdagrad().LearningRate = 0 },
		`table "movie": table: random uniform from -0.05 to NaN`: func(s *spec) { s.Tables[1].Initializer.GetRandomUniform().Max = nan },
		`dense_optimizer: no optimizer`:                          func(s *spec) { s.DenseOptimizer = nil },
		`no layers`:                                              func(s *spec) { s.Layers = nil },
		`layer "dense_0" is declared twice`:                      func(s *spec) { s.Layers[1].Name = "dense_0" },
		`layer 2 has no name`:                                    func(s *spec) { s.Layers[1].Name = "" },
		`layer "dense_1" has 0 units`:                            func(s *spec) { s.Layers[1].Units = 0 },
		`kernel of 65536 by 65536`:                               func(s *spec) { s.Layers[0].Units, s.Layers[1].Units = 65536, 65536 },
		`unknown activation 9`:                                   func(s *spec) { s.Layers[1].Activation = 9 },
		`has 2 units and activation SIGMOID`:                     func(s *spec) { s.Layers[2].Units = 2 },
		`has 1 units and activation RELU`:                        func(s *spec) { s.Layers[2].Activation = model.Activation_RELU },
		`the label reads no field`:                               func(s *spec) { s.Label = nil },
		`the label's threshold is +Inf`:                          func(s *spec) { s.Label.Threshold = math.Inf(1) },
	} {
		s := modelspec.MovieRanking()
		change(s)
		if err := modelspec.Validate(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	if modelspec.Validate(nil) == nil {
		t.Error("nil is valid")
	}
	s := modelspec.MovieRanking() // every complaint at once
	s.Name, s.Tables[0].Dim, s.Label.Field = "", 0, ""
	if err := modelspec.Validate(s); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three complaints, got %v", err)
	}
}

// Whatever is valid can be built.
func TestValidMeansBuildable(t *testing.T) {
	s := modelspec.MovieRanking()
	s.Tables[0].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	s.Tables[0].Initializer = &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}
	s.Tables[0].Dim = 7
	s.Features = append(s.Features, &model.Feature{Name: "friend", Field: "friendId", Slot: 3, Table: "user"})
	s.DenseOptimizer = s.Tables[0].Optimizer
	s.Layers = s.Layers[1:]
	if err := modelspec.Validate(s); err != nil {
		t.Fatal(err)
	}
	tab, err := modelspec.NewTable(s, "user")
	if err != nil || tab.SlotSize() != 0 {
		t.Error(err)
	}
	tower, err := modelspectest.NewTower(s)
	if err != nil || tower.In() != 7+32+7 {
		t.Errorf("%v", err)
	}
	if modelspec.DenseOptimizer(s).SlotSize(5) != 0 {
		t.Error("sgd keeps slots")
	}
}

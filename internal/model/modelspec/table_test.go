package modelspec_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/kernels/compress"
	"github.com/monolith-go/monolith/kernels/filter"
	"github.com/monolith-go/monolith/kernels/optim"
	"github.com/monolith-go/monolith/kernels/table"
)

func segmentsSpec(t testing.TB) *model.ModelSpec {
	t.Helper()
	text, err := os.ReadFile("testdata/segments.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := specfile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// What each line of testdata/segments.yaml becomes.
func TestEveryRuleCanBeNamed(t *testing.T) {
	spec := segmentsSpec(t)
	segments, err := modelspec.Segments(spec.Tables[0], spec.Seed)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"4 optim.Scheduled table.Zeros fp32 sgd[]",
		"4 optim.Adagrad initial.Constant fp32 adagrad[norm]",
		"3 optim.FTRL initial.Constant fp16 ftrl[zero norm]",
		"3 optim.DynamicWdAdagrad table.RandomUniform fixed_r8 dynamic_wd_adagrad[norm last_update_step]",
		"3 optim.Adadelta table.Zeros one_bit adadelta[accum accum_update]",
		"3 optim.Adam table.Zeros fp32 adam[m v beta1_power beta2_power]",
		"3 optim.AMSGrad table.Zeros fp32 amsgrad[m v vhat beta1_power beta2_power]",
		"3 optim.Scheduled table.Zeros fp32 momentum[n]",
		"3 optim.MovingAverage table.Zeros fp32 ",
		"3 optim.RMSProp table.Zeros fp32 rmsprop[n]",
		"3 optim.Scheduled table.Zeros fp32 rmspropv2[n]",
		"3 *optim.DC table.Zeros fp32 sgd[]",
		"3 optim.GroupFTRL table.Zeros fp32 group_ftrl[zero norm]",
		"1 optim.BatchSoftmax initial.Constant fp32 batch_softmax[global_step]",
		"3 optim.StochasticRounding table.Zeros fp32 group_adagrad[grad_square_sum]",
	}
	for i, s := range segments {
		got := fmt.Sprintf("%d %T %T %s ", s.Dim, s.Optimizer, s.Initializer, s.Compressor.Name())
		for _, d := range s.Optimizer.(optim.Dumper).Dumps(s.Dim) {
			var names []string
			for _, p := range d.Planes {
				names = append(names, p.Name)
			}
			got += d.Kind + fmt.Sprint(names)
		}
		if i >= len(want) || got != want[i] {
			t.Errorf("segment %d is %s", i+1, got)
		}
	}
	if len(segments) != len(want) {
		t.Errorf("%d segments", len(segments))
	}
	if got := segments[5].Optimizer.(optim.Adam); got != (optim.Adam{LearningRate: .01, Beta1: .5, Beta2: .99, Epsilon: .01}) {
		t.Errorf("defaults: %+v", got)
	}
	for _, serving := range []bool{false, true} {
		cfg, err := modelspec.TableConfig(spec, "wide", serving)
		if err != nil || cfg.MaxRows != 1000 || cfg.MaxBytes != 1000000 || cfg.SkipZero != serving || (cfg.Admitter == nil) != serving {
			t.Errorf("%+v, %v", cfg, err)
		}
		tab, err := table.New(cfg)
		if err != nil || tab.Dim() != 45 {
			t.Fatal(err)
		}
	}
	if o, ok := modelspec.DenseOptimizer(spec).(optim.Scheduled); !ok {
		t.Errorf("dense: %T", o)
	}
}

// A table learns by its segments' own rules, and its dumps name every slot of a row.
func TestTableOfSegmentsLearns(t *testing.T) {
	spec := segmentsSpec(t)
	spec.Tables[0].Admission = nil
	tab, err := modelspec.NewTable(spec, "wide")
	if err != nil {
		t.Fatal(err)
	}
	segments, _ := modelspec.Segments(spec.Tables[0], spec.Seed)
	id := modelspec.FID(1, 5)
	values := make([]float32, 45)
	var slots []float32
	at, key := 0, 0
	grads := make([]float32, 45)
	for i := range grads {
		grads[i] = float32(i%5) - 1.5
	}
	if err := tab.OptimizeAt([]int64{id}, grads, 9, table.Rates{GlobalStep: 6}); err != nil {
		t.Fatal(err)
	}
	rows, ok := tab.LookupEntries([]int64{id})
	if !ok[0] {
		t.Fatal("no row")
	}
	for i, s := range segments {
		w, own := values[at:at+s.Dim], make([]float32, s.Optimizer.SlotSize(s.Dim))
		if _, drawn := s.Initializer.(table.RandomUniform); drawn { // its key is the table's affair
			key = i
		} else {
			s.Initializer.Init(w, 0)
			s.Optimizer.InitSlots(own)
			g := slices.Clone(grads[at : at+s.Dim])
			if a, ok := s.Compressor.(compress.Aware); ok {
				a.Grade(g, w, 6)
			}
			s.Optimizer.Update(w, own, g, optim.Step{GlobalStep: 6})
			if got := rows[0].Values[at : at+s.Dim]; !slices.Equal(got, w) {
				t.Errorf("segment %d: %v, want %v", i+1, got, w)
			}
			if got := rows[0].Slots[len(slots) : len(slots)+len(own)]; !slices.Equal(got, own) {
				t.Errorf("segment %d: slots %v, want %v", i+1, got, own)
			}
		}
		at, slots = at+s.Dim, append(slots, own...)
	}
	if key != 3 || len(slots) != len(rows[0].Slots) {
		t.Errorf("%d slots, want %d", len(rows[0].Slots), len(slots))
	}
}

func TestAdmissionAndExpiry(t *testing.T) {
	spec := segmentsSpec(t)
	f, err := modelspec.Filter(spec.Tables[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(*filter.SlidingCounter); !ok || f.Admit(modelspec.FID(2, 7), 2) || !f.Admit(modelspec.FID(2, 7), 1) || f.Admit(modelspec.FID(1, 7), 4) || f.Admit(modelspec.FID(1, 7), 4) {
		t.Errorf("%T", f)
	}
	if f, err = modelspec.Filter(spec.Tables[1], 1); err != nil {
		t.Fatal(err)
	} else if _, ok := f.(*filter.Probabilistic); !ok {
		t.Errorf("%T", f)
	}
	if f, err = modelspec.Filter(&model.Table{}, 1); err != nil || f != (filter.None{}) {
		t.Errorf("%T, %v", f, err)
	}
	e, err := modelspec.ExpiryOf(spec.Tables[0])
	if err != nil || e.Days != 30 || !maps.Equal(e.Slots, map[uint32]uint32{1: 7, 2: 0}) {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err = modelspec.ExpiryOf(spec.Tables[1]); err != nil || e.Days != 0 || len(e.Slots) != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestValidateRules(t *testing.T) {
	rule := func(json string) func(*model.ModelSpec) {
		return func(s *model.ModelSpec) {
			s.Tables[1].Optimizer = &model.Optimizer{}
			if err := protojson.Unmarshal([]byte(json), s.Tables[1].Optimizer); err != nil {
				t.Fatal(err)
			}
		}
	}
	inf, nan, far := float32(math.Inf(1)), float32(math.NaN()), float32(1.5)
	for says, change := range map[string]func(*model.ModelSpec){
		`adam beta1 is 1`:                       rule(`{"adam":{"beta1":1}}`),
		`table "counted": optim: ftrl learning`: rule(`{"ftrl":{"learningRate":0}}`),
		`dc: no optimizer`:                      rule(`{"dc":{"lambda":1}}`),
		`dc: optim: sgd learning rate`:          rule(`{"dc":{"lambda":1,"optimizer":{"sgd":{}}}}`),
		`it keeps one number, give dim 1`:       rule(`{"batchSoftmax":{}}`),
		`no optimizer: declare`:                 rule(`{"stochasticRoundingFloat16":true}`),
		`rmsprop takes no rate but its own`: func(s *model.ModelSpec) {
			rule(`{"rmsprop":{}}`)(s)
			s.Tables[1].LearningRate = &model.LearningRate{Kind: &model.LearningRate_Constant{Constant: 1}}
		},
		`warmup_steps and a learning_rate function are both`: func(s *model.ModelSpec) {
			s.Tables[1].LearningRate = &model.LearningRate{Kind: &model.LearningRate_Constant{Constant: 1}}
		},
		`learning_rate function is empty`: func(s *model.ModelSpec) { s.DenseLearningRate = &model.LearningRate{} },
		`warmup_steps is 18446744073709551615`: func(s *model.ModelSpec) {
			s.Tables[1].Optimizer.GetAdagrad().WarmupSteps = math.MaxUint64
		},
		`polynomial decay over 0 steps`: func(s *model.ModelSpec) {
			s.DenseLearningRate.GetPolynomialDecay().DecaySteps = 0
		},
		`dense_optimizer: it cannot take a variable`: func(s *model.ModelSpec) {
			s.DenseOptimizer = &model.Optimizer{Kind: &model.Optimizer_BatchSoftmax{}}
		},
		`segments stand beside`:                     func(s *model.ModelSpec) { s.Tables[0].Initializer = s.Tables[1].Initializer },
		`dim is 44 where the segments add up to 45`: func(s *model.ModelSpec) { s.Tables[0].Dim = 44 },
		`segment 2: it has dim 0`:                   func(s *model.ModelSpec) { s.Tables[0].Segments[1].Dim = 0 },
		`segment 15: no initializer`:                func(s *model.ModelSpec) { s.Tables[0].Segments[14].Initializer = nil },
		`the constant is +Inf`:                      func(s *model.ModelSpec) { s.Tables[0].Segments[2].Initializer.GetConstants().Constant = inf },
		`the range of fixed_r8 is +Inf`:             func(s *model.ModelSpec) { s.Tables[0].Segments[3].Compressor.GetFixedR8().R = &inf },
		`amplitude of one_bit`:                      func(s *model.ModelSpec) { s.Tables[0].Segments[4].Compressor.GetOneBit().Amplitude = &inf },
		`65 segments: 64 are allowed`:               func(s *model.ModelSpec) { s.Tables[0].Segments = make([]*model.Segment, 65) },
		`the threshold of slot 1 is 16`:             func(s *model.ModelSpec) { s.Tables[0].Admission.Slots[0].Threshold = 16 },
		`admission: slot 32768 does not exist`:      func(s *model.ModelSpec) { s.Tables[0].Admission.Slots[0].Slot = 32768 },
		`admission names no filter`:                 func(s *model.ModelSpec) { s.Tables[1].Admission.Kind = nil },
		`expire: slot 1 is named twice`:             func(s *model.ModelSpec) { s.Tables[0].Expire.Slots[1].Slot = 1 },
		`max_bytes is 100, which is too little for`: func(s *model.ModelSpec) { s.Tables[0].MaxBytes = 100 },
		`sync: interval_ms is 3600001: give at most 3600000`: func(s *model.ModelSpec) {
			s.Tables[0].Sync = &model.Sync{IntervalMs: 3_600_001}
		},
		`sync: tolerance is 1.5: give 0 to 1`: func(s *model.ModelSpec) {
			s.Tables[0].Sync = &model.Sync{Tolerance: &far}
		},
		`sync: tolerance is NaN`: func(s *model.ModelSpec) {
			s.Tables[0].Sync = &model.Sync{Tolerance: &nan}
		},
		`expire: 36501 days`:                          func(s *model.ModelSpec) { s.Tables[0].Expire.Days = 36501 },
		`expire: slot 1 has 40000 days: give at most`: func(s *model.ModelSpec) { s.Tables[0].Expire.Slots[0].Days = 40000 },
	} {
		s := segmentsSpec(t)
		change(s)
		if err := modelspec.Validate(s); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	// A builder may leave a message of defaults out.
	s := segmentsSpec(t)
	s.Tables[1].Optimizer = &model.Optimizer{Kind: &model.Optimizer_Adam{}}
	s.Tables[1].Compressor = &model.Compressor{Kind: &model.Compressor_FixedR8{}}
	s.Tables[1].Admission.Kind = &model.Admission_SlidingCounter{}
	if err := modelspec.Validate(s); err != nil {
		t.Error(err)
	}
}

package embeddingtask

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// The defaults are those of the original's schema.
func TestDefaults(t *testing.T) {
	got, err := Parse([]byte("spec: m.yaml\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Task{
		Spec: "m.yaml", Format: "example",
		QRMultiHashing: false, QRHashingThreshold: 100_000_000, QRCollisionRate: 4,
		FilesInterleave: 4, Deterministic: false, GradientMultiplier: 1, EnableCaching: false, TopKSampling: 6,
		RandomInitOutOfVocab: false, MergeVector: false,
		Train: Train{DateAndFileNameFormat: "*/*/part*", Repeat: false, LabelKey: "label", PerCoreBatchSize: 8},
		Eval:  Eval{StepsPerEval: 10000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Idle()) != 0 {
		t.Errorf("idle %q", got.Idle())
	}
}

func TestParse(t *testing.T) {
	got, err := Parse([]byte(`
spec: m.yaml
format: json
accelerator: tpu
custom_vocab_size_mapping: {3: 70, 4: 80}
vocab_size_offset: -2
top_k_sampling_num_per_core: 2
use_random_init_embedding_for_oov: true
merge_vector: true
train: {label_key: like, max_steps: 7, start_date: "20260101"}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got.CustomVocabSizeMapping[4] != 80 || got.VocabSizeOffset != -2 || got.Train.MaxSteps != 7 || got.Train.DateAndFileNameFormat != "*/*/part*" || len(got.Idle()) != 4 {
		t.Errorf("%+v, idle %q", got, got.Idle())
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	for says, text := range map[string]string{
		"the task is empty":           "",
		"spec must name":              "format: json\n",
		"vocab_size is no parameter":  "spec: m\nvocab_size: 3\n",
		"line 3":                      "spec: m\ntrain:\n  files: x\n",
		"already defined":             "spec: m\nspec: n\n",
		"a second document":           "spec: m\n---\nspec: n\n",
		"cannot unmarshal":            "spec: m\nvocab_size_per_slot: many\n",
		"qr_collision_rate must be":   "spec: m\nqr_collision_rate: 0\n",
		"files_interleave_cycle":      "spec: m\nfiles_interleave_cycle_length: 0\n",
		"per_core_batch_size 0":       "spec: m\ntrain: {per_core_batch_size: 0}\n",
		"must not be negative":        "spec: m\ntrain: {max_steps: -1}\n",
		"exclude one another":         "spec: m\ntrain: {save_checkpoints_steps: 1, save_checkpoints_secs: 1}\n",
		"gradient_multiplier 2 is no": "spec: m\ngradient_multiplier: 2\n",
		`accelerator "gpu"`:           "spec: m\naccelerator: gpu\n",
		"slot 3 has size 0":           "spec: m\ncustom_vocab_size_mapping: {3: 0}\n",
		`end_date "2026" must be`:     "spec: m\ntrain: {end_date: \"2026\"}\n",
		"are allowed":                 strings.Repeat(" ", MaxBytes+1),
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v, %v", says, got, err)
		}
	}
}

func TestReadVocabulary(t *testing.T) {
	got, err := ReadVocabulary(strings.NewReader("slot\tcount\n1\t100\r\n\n7\t250000000\n-1\t3\nx1\t4\n"))
	if diff := cmp.Diff(map[uint32]uint64{1: 100, 7: 250000000}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for says, text := range map[string]string{
		"line 2 has 1 fields":        "1\t2\n3\n",
		"line 1 has 3 fields":        "1\t2\t3\n",
		`line 1: "x" is no number`:   "1\tx\n",
		`line 1: "-4" is no number`:  "1\t-4\n",
		"line 1: slot 32768":         "32768\t2\n",
		"line 1: slot 9999999999999": "99999999999999999999\t2\n",
		"token too long":             strings.Repeat("1", maxLine+1),
	} {
		if got, err := ReadVocabulary(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v, %v", says, got, err)
		}
	}
}

func FuzzReadVocabulary(f *testing.F) {
	f.Add("1\t2\n")
	f.Fuzz(func(t *testing.T, text string) {
		sizes, err := ReadVocabulary(strings.NewReader(text))
		for slot := range sizes {
			if err == nil && slot > modelspec.MaxSlot {
				t.Errorf("slot %d", slot)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("spec: m\ntrain: {max_steps: 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if task, err := Parse([]byte(text)); err == nil && (task.Spec == "" || task.QRCollisionRate == 0) {
			t.Errorf("%+v", task)
		}
	})
}

// One size counts above a slot's own, which counts above the file; the offset changes the file's alone.
func TestWhichVocabularyCounts(t *testing.T) {
	file := map[uint32]uint64{1: 100, 2: 200}
	for name, tc := range map[string]struct {
		task      Task
		want      []*model.Vocabulary
		unbounded int
	}{
		"the file's":         {Task{}, []*model.Vocabulary{{Size: 100}, {Size: 200}}, 0},
		"with an offset":     {Task{VocabSizeOffset: -1}, []*model.Vocabulary{{Size: 99}, {Size: 199}}, 0},
		"a slot's own":       {Task{VocabSizeOffset: 5, CustomVocabSizeMapping: map[uint32]uint64{2: 7}}, []*model.Vocabulary{{Size: 105}, {Size: 7}}, 0},
		"one for all":        {Task{VocabSizeOffset: 5, VocabSizePerSlot: 50, CustomVocabSizeMapping: map[uint32]uint64{2: 7}}, []*model.Vocabulary{{Size: 50}, {Size: 50}}, 0},
		"split":              {Task{QRMultiHashing: true, QRHashingThreshold: 100, QRCollisionRate: 4}, []*model.Vocabulary{{Size: 100}, {Size: 200, Divisor: 51}}, 0},
		"split by one alone": {Task{QRMultiHashing: true, QRHashingThreshold: 99, QRCollisionRate: 2}, []*model.Vocabulary{{Size: 100, Divisor: 51}, {Size: 200, Divisor: 101}}, 0},
		"not split":          {Task{QRHashingThreshold: 1, QRCollisionRate: 4}, []*model.Vocabulary{{Size: 100}, {Size: 200}}, 0},
	} {
		got, unbounded, err := tc.task.Bind(modelspec.MovieRanking(), file)
		if err != nil || len(unbounded) != tc.unbounded {
			t.Errorf("%s: %v, %q", name, err, unbounded)
			continue
		}
		for i, f := range got.Features {
			if f.GetVocabulary().GetSize() != tc.want[i].GetSize() || f.GetVocabulary().GetDivisor() != tc.want[i].GetDivisor() {
				t.Errorf("%s: feature %s has %v, want %v", name, f.GetName(), f.GetVocabulary(), tc.want[i])
			}
		}
	}
	spec := modelspec.MovieRanking()
	spec.Features[0].Vocabulary = &model.Vocabulary{Size: 3}
	got, unbounded, err := (&Task{VocabSizeOffset: 1}).Bind(spec, nil)
	if err != nil || len(unbounded) != 1 || got.Features[0].GetVocabulary().GetSize() != 3 || got.Features[1].GetVocabulary() != nil || spec.Features[1].GetVocabulary() != nil {
		t.Errorf("a declared vocabulary: %v, %q, %v", got.GetFeatures(), unbounded, err)
	}
	for says, task := range map[string]*Task{
		"make no size": {VocabSizeOffset: -100},
		"not valid":    {VocabSizePerSlot: 1 << 60},
	} {
		if _, _, err := task.Bind(modelspec.MovieRanking(), file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

func TestDates(t *testing.T) {
	task := Defaults()
	task.Train.FileFolder, task.Train.StartDate, task.Train.EndDate = "data/", "20260102", "20260103"
	pattern, within, err := task.Pattern()
	if err != nil || pattern != "data/*/*/part*" {
		t.Fatalf("%s, %v", pattern, err)
	}
	for path, want := range map[string]bool{
		"data/20260101/00/part-0": false, "data/20260102/00/part-0": true, "data/20260103/23/part-9": true, "data/20260104/00/part-0": false,
		"data/2026010312/00/part": true, "data/x/y/part": false, "data/short": false,
	} {
		if within(path) != want {
			t.Errorf("%s counts: %v", path, !want)
		}
	}
	task.Train.StartDate = ""
	if _, within, _ := task.Pattern(); !within("data/00000000/0/part") || within("data/20260104/0/part") {
		t.Error("without a first day")
	}
	task.Train.FilePattern = "part-*"
	if pattern, within, err := task.Pattern(); err != nil || pattern != "part-*" || !within("part-1") {
		t.Errorf("%s, %v", pattern, err)
	}
	for says, train := range map[string]Train{"train.file_folder with": {}, "needs train.end_date": {FileFolder: "d", DateAndFileNameFormat: "*"}} {
		if _, _, err := (&Task{Train: train}).Pattern(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	task.Train.VocabFileFolderPrefix = "vocab/"
	if got := task.VocabularyPattern(); got != "vocab/20260103/part*.csv" {
		t.Errorf("vocabulary %s", got)
	}
	if got := (&Task{Train: Train{EndDate: "20260103"}}).VocabularyPattern(); got != "" {
		t.Errorf("vocabulary %s", got)
	}
}

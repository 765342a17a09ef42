// Package embeddingtask is the parameters of Monolith's embedding tasks for TPUs, with their defaults, and
// what they make of a declared model: vocabularies of its features, by slot.
//
//	task file ── Parse ──► Task ── Sizes, Bind ──► ModelSpec with vocabularies ──► the job, as any other
//
// The model itself, which a task of the original builds in Python, is a declaration of its own (spec).
package embeddingtask

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"gopkg.in/yaml.v3"
)

// MaxBytes bounds the text of a task.
const MaxBytes = 1 << 20

// Task is an embedding task, its fields called as in the original; of those that are None there, the zero
// is None.
type Task struct {
	Spec   string `yaml:"spec"`   // YAML file that declares the model, as from the task's folder
	Format string `yaml:"format"` // of the records

	Accelerator string `yaml:"accelerator"`

	VocabSizePerSlot       uint64            `yaml:"vocab_size_per_slot"`
	CustomVocabSizeMapping map[uint32]uint64 `yaml:"custom_vocab_size_mapping"`
	VocabSizeOffset        int64             `yaml:"vocab_size_offset"`
	QRMultiHashing         bool              `yaml:"qr_multi_hashing"`
	QRHashingThreshold     uint64            `yaml:"qr_hashing_threshold"`
	QRCollisionRate        uint64            `yaml:"qr_collision_rate"`
	VocabFilePath          string            `yaml:"vocab_file_path"`
	EnableDeepInsight      bool              `yaml:"enable_deepinsight"`
	EnableHostCallScalars  bool              `yaml:"enable_host_call_scalar_metrics"`
	EnableHostCallNorms    bool              `yaml:"enable_host_call_norm_metrics"`
	FilesInterleave        int               `yaml:"files_interleave_cycle_length"`
	Deterministic          bool              `yaml:"deterministic"`
	GradientMultiplier     float64           `yaml:"gradient_multiplier"`
	EnableCaching          bool              `yaml:"enable_caching_with_tpu_var_mode"`
	TopKSampling           int               `yaml:"top_k_sampling_num_per_core"`
	RandomInitOutOfVocab   bool              `yaml:"use_random_init_embedding_for_oov"`
	MergeVector            bool              `yaml:"merge_vector"`

	Train Train `yaml:"train"`
	Eval  Eval  `yaml:"eval"`
}

// Train are the parameters of training.
type Train struct {
	FilePattern           string `yaml:"file_pattern"`
	FileFolder            string `yaml:"file_folder"`
	DateAndFileNameFormat string `yaml:"date_and_file_name_format"`
	StartDate             string `yaml:"start_date"`
	EndDate               string `yaml:"end_date"`
	VocabFileFolderPrefix string `yaml:"vocab_file_folder_prefix"`
	Repeat                bool   `yaml:"repeat"`
	LabelKey              string `yaml:"label_key"`
	PerCoreBatchSize      int    `yaml:"per_core_batch_size"` // eight cores make a step
	MaxSteps              int64  `yaml:"max_steps"`
	SaveCheckpointsSteps  int64  `yaml:"save_checkpoints_steps"`
	SaveCheckpointsSecs   int64  `yaml:"save_checkpoints_secs"`
}

// Eval are the parameters of evaluation.
type Eval struct {
	FilePattern  string `yaml:"file_pattern"`
	StepsPerEval int64  `yaml:"steps_per_eval"`
}

// Defaults are the original's.
func Defaults() Task {
	return Task{
		Format:             "example",
		QRHashingThreshold: 100000000, QRCollisionRate: 4,
		FilesInterleave: 4, GradientMultiplier: 1, TopKSampling: 6,
		Train: Train{DateAndFileNameFormat: "*/*/part*", LabelKey: "label", PerCoreBatchSize: 8},
		Eval:  Eval{StepsPerEval: 10000},
	}
}

var unknown = regexp.MustCompile(`field (\S+) not found in type \S+`)

// Parse reads a task. Unknown and repeated parameters are refused, with their lines.
func Parse(text []byte) (*Task, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a task of %d bytes: %d are allowed", len(text), MaxBytes)
	}
	t := Defaults()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&t); errors.Is(err, io.EOF) {
		return nil, errors.New("the task is empty: give spec and train.file_pattern at least")
	} else if err != nil {
		return nil, errors.New(unknown.ReplaceAllString(err.Error(), "$1 is no parameter of an embedding task"))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("a second document stands behind the task: one file is one task")
	}
	return &t, t.check()
}

// check holds the rules of the original, and refuses what is not done here.
func (t *Task) check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(t.Spec != "", "spec must name the YAML file that declares the model: monolith model init writes one")
	must(t.QRCollisionRate > 0, "qr_collision_rate must be 1 or more")
	must(t.FilesInterleave > 0, "files_interleave_cycle_length %d must be 1 or more", t.FilesInterleave)
	must(t.Train.PerCoreBatchSize > 0, "train.per_core_batch_size %d must be 1 or more", t.Train.PerCoreBatchSize)
	must(t.Train.MaxSteps >= 0 && t.Train.SaveCheckpointsSteps >= 0 && t.Train.SaveCheckpointsSecs >= 0 && t.Eval.StepsPerEval >= 0, "steps and seconds must not be negative")
	must(t.Train.SaveCheckpointsSteps == 0 || t.Train.SaveCheckpointsSecs == 0, "train.save_checkpoints_steps and train.save_checkpoints_secs exclude one another: give one")
	must(t.GradientMultiplier == 1, "gradient_multiplier %g is not done here: scale the learning rates of the model's tables", t.GradientMultiplier)
	must(t.Accelerator == "" || t.Accelerator == "tpu", "accelerator %q: an embedding task is one for tpu", t.Accelerator)
	for slot, size := range t.CustomVocabSizeMapping {
		must(size > 0, "custom_vocab_size_mapping: slot %d has size 0: give 1 or more, or leave it out", slot)
	}
	return errors.Join(append(errs, t.CheckDates())...)
}

// CheckDates complains about dates that are none.
func (t *Task) CheckDates() error {
	var errs []error
	for _, d := range []struct{ name, date string }{{"start_date", t.Train.StartDate}, {"end_date", t.Train.EndDate}} {
		if d.date != "" && !dated.MatchString(d.date) {
			errs = append(errs, fmt.Errorf("train.%s %q must be eight digits, as 20260131", d.name, d.date))
		}
	}
	return errors.Join(errs...)
}

var dated = regexp.MustCompile(`^\d{8}$`)

// Idle are the parameters that were given and do nothing here, and why.
func (t *Task) Idle() []string {
	var all []string
	say := func(given bool, why string) {
		if given {
			all = append(all, why)
		}
	}
	say(t.TopKSampling != Defaults().TopKSampling, "top_k_sampling_num_per_core does nothing: examples are sampled by uid_bucket alone")
	say(t.RandomInitOutOfVocab, "use_random_init_embedding_for_oov does nothing: every id is within its vocabulary")
	say(t.MergeVector, "merge_vector does nothing: a row holds all segments of a table side by side")
	say(t.Train.LabelKey != Defaults().Train.LabelKey, "train.label_key does nothing: the model's label says which field it is")
	return all
}

package hostcall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/model/tfevents"
	"github.com/monolith-go/monolith/internal/model/tfrecord"
)

// What the original's test adds, at its offsets.
func TestAccumulate(t *testing.T) {
	base, delta := make([]int64, 10), []int64{1, 1}
	for _, step := range []struct {
		offset int
		want   []int64
	}{
		{1, []int64{0, 1, 1, 0, 0, 0, 0, 0, 0, 0}},
		{5, []int64{0, 1, 1, 0, 0, 1, 1, 0, 0, 0}},
		{6, []int64{0, 1, 1, 0, 0, 1, 2, 1, 0, 0}},
		{9, []int64{1, 1, 1, 0, 0, 1, 2, 1, 0, 1}},
	} {
		accumulate(base, delta, step.offset)
		if !slices.Equal(base, step.want) {
			t.Errorf("at %d: %v, want %v", step.offset, base, step.want)
		}
	}
}

// trained is a step of n samples, with labels 0 and 1 by turns and scores as given.
func trained(t *testing.T, scores []float32, lines []input.Line) Step {
	t.Helper()
	e, err := runtime.New(modelspec.MovieRanking(), 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	b := e.NewBatch()
	for i := range scores {
		if err := b.Add(runtime.Sample{IDs: [][]int64{{modelspec.FID(1, int64(i))}, {modelspec.FID(2, 7)}}, Labels: []float32{float32(i % 2)}}); err != nil {
			t.Fatal(err)
		}
	}
	var values [][]float32
	for _, v := range e.Variables() {
		values = append(values, modelspec.InitVariable(e.Spec(), v))
	}
	w, err := e.Weights(1, values)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	for shard := range 2 {
		for _, block := range b.Blocks(shard) {
			for i := range block.Rows {
				block.Rows[i] = float32(i%7) / 7
			}
		}
	}
	res, err := e.Train(&runtime.Lane{}, b, w)
	if err != nil {
		t.Fatal(err)
	}
	res.Scores = [][]float32{scores}
	return Step{Tasks: e.Tasks(), Variables: e.Variables(), Batch: b, Shards: 2, Lines: lines, Result: res}
}

func callsOf(t *testing.T, cfg Config, step uint64) *Calls {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return New(cfg, "trainer-0", func(context.Context) (uint64, error) { return step, nil }, slog.New(slog.DiscardHandler))
}

// handed are the labels and scores of the calls that wait for the host.
func handed(t *testing.T, c *Calls) (all []string) {
	t.Helper()
	for {
		select {
		case p := <-c.queue:
			step, tensors, err := p.Decompress()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(step, find(tensors, labelsOf).Floats, find(tensors, scoresOf).Floats))
		default:
			return all
		}
	}
}

// A call has its own step's predictions, or cached those of all steps since the call before.
func TestWindows(t *testing.T) {
	for name, tc := range map[string]struct {
		every  int
		cached bool
		want   []string
	}{
		"of a step":      {2, false, []string{"9 [0] [0.2]", "9 [0 1] [0.4 0.5]"}},
		"of a window":    {2, true, []string{"9 [0 1 0] [0.1 0.15 0.2]", "9 [0 0 1] [0.3 0.4 0.5]"}},
		"of every step":  {1, true, []string{"9 [0 1] [0.1 0.15]", "9 [0] [0.2]", "9 [0] [0.3]", "9 [0 1] [0.4 0.5]"}},
		"of a long one":  {4, true, []string{"9 [0 1 0 0 0 1] [0.1 0.15 0.2 0.3 0.4 0.5]"}},
		"that is not up": {5, true, nil},
	} {
		c := callsOf(t, Config{Dir: t.TempDir(), Every: tc.every, Cached: tc.cached}, 9)
		for _, scores := range [][]float32{{.1, .15}, {.2}, {.3}, {.4, .5}} {
			c.Learnt(t.Context(), trained(t, scores, nil))
		}
		if got := handed(t, c); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// The host's summaries follow from the names of tensors.
func TestReductions(t *testing.T) {
	for name, want := range map[string]float64{"a_avg": 2, "x_avg/t": 2, "a_max": 4, "a_sum": 6, "norm": 1} {
		if got := reduced(name, []float32{1, 4, 1}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// AUC and examples are those of a hundredth of the users, and of samples that say nothing of theirs.
func TestUsersAreSampled(t *testing.T) {
	lines := []input.Line{
		{Known: true, User: 1009, Time: 50, Rate: .5}, {Known: true, User: 1010, Rate: 1}, {Rate: 1}, {Known: true, User: -992, Time: 60, Rate: 1}, {Known: true, User: -1, Rate: 1}, {Known: true, User: 5, Rate: .25},
	}
	s := trained(t, []float32{.6, 0, .2, .5, .9, .7}, lines) // labels 0 1 0 1 0 1; the second and the fifth are not looked at
	c := callsOf(t, Config{Dir: t.TempDir(), Every: 1, Metrics: []string{Scalars, Norms, Examples}}, 3)
	c.Learnt(t.Context(), s)
	p := <-c.queue
	_, tensors, err := p.Decompress()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, v := range summaries(tensors) {
		got[v.Tag] = v.Value
	}
	if got["auc"] != 0.75 || got["label_avg"] != .5 || math.Abs(got["prediction_avg"]-2.9/6) > 1e-6 || got["prediction_max"] != float64(float32(.9)) {
		t.Errorf("summaries %v", got)
	}
	if v := got["gradient_norm/dense_0/kernel"]; !(v > 0) || !(got["row_gradient_norm_max/user"] >= got["row_gradient_norm_avg/user"]) {
		t.Errorf("norms %v", got)
	}
	for tag := range got {
		if material(tag) || tag == globalStep || tag == bucketsOf || tag == timesOf {
			t.Errorf("%s is a summary", tag)
		}
	}
	texts := map[string][]byte{}
	for _, x := range examples(tensors) {
		texts[x.Tag] = x.Value
	}
	for tag, want := range map[string][]byte{
		"di_example_sample_rates": tfevents.Floats([]float32{.5, 1, 1, .25}), "di_req_times": tfevents.Ints([]int64{50, 0, 60, 0}),
		"di_labels": tfevents.Floats([]float32{0, 0, 1, 1}), "di_preds": tfevents.Floats([]float32{.6, .2, .5, .7}),
	} {
		if !slices.Equal(texts[tag], want) {
			t.Errorf("%s is %x, want %x", tag, texts[tag], want)
		}
	}
}

// A sample that a task does not learn from is in no AUC.
func TestSamplesWithoutAWeight(t *testing.T) {
	tensors := []Tensor{{Name: bucketsOf, Ints: []int64{nobody, nobody, nobody}}, {Name: labelsOf, Floats: []float32{1, 0, 1}}, {Name: scoresOf, Floats: []float32{.9, .5, .1}}, {Name: countsOf, Floats: []float32{1, 1, 0}}}
	if got := aucOf(tensors, ""); got != 1 {
		t.Errorf("AUC %v", got)
	}
}

// What waits when the training ends is written, and a learner that waits for the host goes on.
func TestTheHostWritesWhatWaits(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := callsOf(t, Config{Dir: dir, Every: 1, Metrics: []string{Examples}}, 5)
		ctx, stop := context.WithCancel(t.Context())
		s := trained(t, []float32{.1, .9}, nil)
		for range queued {
			c.Learnt(ctx, s)
		}
		waits := make(chan struct{})
		go func() { c.Learnt(ctx, s); close(waits) }()
		synctest.Wait()
		select {
		case <-waits:
			t.Error("the queue has no end")
		default:
		}
		stop()
		<-waits
		c.Run(ctx)
	})
	names, err := filepath.Glob(filepath.Join(dir, "trainer-0", "events.out.tfevents.*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records := 0
	for r := tfrecord.NewReader(f, 0); ; records++ {
		raw, err := r.Next()
		if err != nil {
			break
		}
		if records > 0 && !strings.Contains(string(raw), string(protowire.AppendVarint([]byte{2 << 3}, 5))) {
			t.Errorf("event %d is of another step: %x", records, raw)
		}
	}
	if records != 1+2*queued {
		t.Errorf("%d records", records)
	}
}

// A host that cannot write takes calls all the same, and shards that do not answer leave the step as it was.
func TestAHostThatCannotWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := callsOf(t, Config{Dir: file, Every: 1}, 5)
	c.step = func(context.Context) (uint64, error) { return 0, errors.New("on their way") }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	for range 3 * queued {
		c.Learnt(ctx, trained(t, []float32{.1, .9}, nil))
	}
	stop()
	<-ended
	var none *Calls
	none.Learnt(ctx, Step{})
	none.Run(ctx)
	if New(Config{}, "a", nil, nil) != nil {
		t.Error("there are calls without a folder")
	}
}

func TestHostCallsThatAreRefused(t *testing.T) {
	for says, c := range map[string]Config{
		"host-call-every 0":    {Dir: "d"},
		"need a host-call-dir": {Cached: true},
		`"scalar" is none of`:  {Dir: "d", Every: 1, Metrics: []string{"scalar"}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

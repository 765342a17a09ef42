package jobs

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/host/jobs/course"
	"github.com/monolith-go/monolith/internal/host/runconfig"
)

// Learnt is what became of a training job.
type Learnt struct {
	Model      string `json:"model"`
	Job        string `json:"job"`
	Dir        string `json:"dir"`
	Parent     string `json:"parent,omitempty"` // the checkpoint that the job began with
	Exports    string `json:"exports"`          // folder of the exported models
	Checkpoint int64  `json:"checkpoint"`
	Version    int64  `json:"version"`         // of the newest export
	Stdin      bool   `json:"stdin,omitempty"` // standard input was learnt, which cannot be read again
	Files      int    `json:"files"`
	Records    int64  `json:"records"` // of the files, each counted once
	Epochs     int    `json:"epochs"`
	MaxSteps   int64  `json:"max_steps,omitempty"`
	FilesHash  string `json:"files_hash"`
	Learnt     int64  `json:"learnt"` // records that count as learnt since the job's first start, parked ones too
	Left       int64  `json:"left"`   // records of the files that are beyond the limit of the steps
	Parked     uint64 `json:"parked"` // records that could not be learnt, since the first start
	Stopped    string `json:"stopped,omitempty"`

	RunConfig []runconfig.Override `json:"run_config,omitempty"` // keys that are not as by default

	// Of this start; a part that an earlier one has learnt is not in them.
	Samples          uint64             `json:"samples"`
	Steps            uint64             `json:"steps"`
	Dropped          map[string]uint64  `json:"dropped,omitempty"` // samples, by sample rule
	Seconds          float64            `json:"seconds"`
	SamplesPerSecond float64            `json:"samples_per_second"`
	Loss             *float64           `json:"loss"`  // moving mean of a sample, each predicted before it was learnt
	AUC              *float64           `json:"auc"`   // likewise, of the last 5000 predictions of each trainer
	Tasks            map[string]float64 `json:"tasks"` // loss/<task> and auc/<task>, where there are several
}

// report adds up what the log says of the job.
func (d *driver) report(ctx context.Context) (*Learnt, error) {
	j, _ := d.lineage()
	l := &Learnt{
		Model: d.job(), Job: d.job(), Dir: d.stack.Config.Dir, Exports: d.stack.Exports(),
		Epochs: d.cfg.Epochs, FilesHash: j.Started.V.GetTopicId(), MaxSteps: j.Started.V.GetFiles().GetMaxSteps(),
		Tasks:     map[string]float64{},
		RunConfig: d.cfg.run.All(),
	}
	if all := j.Restorable(); len(all) > 0 {
		l.Checkpoint = all[0].GetId()
		for _, offset := range all[0].GetOffsets() {
			l.Learnt += offset
		}
	}
	if d.stream != nil {
		l.Stdin = true
		l.Records, _ = d.stream.End()
		l.Left = l.Records - l.Learnt
	} else {
		l.Files, l.Records, l.Left = d.set.Files(), d.set.Records(), -l.Learnt
		for p := range d.set.Partitions() {
			l.Left += d.set.End(p)
		}
	}
	if n := len(j.Exports); n > 0 {
		l.Version = j.Exports[n-1].V.GetVersion()
	}
	if p := j.Started.V.GetParent(); p != nil {
		l.Parent = fmt.Sprintf("checkpoint %d of job %s in %s", p.GetCheckpoint(), p.GetJob(), p.GetDir())
	}
	var c course.State
	d.course.Read(func(s course.State) { c = s })
	l.Stopped = c.Reason
	for _, f := range c.Trainers {
		l.Samples, l.Steps = l.Samples+f.Samples, l.Steps+f.Steps
		for name, n := range f.Values {
			if rule, ok := strings.CutPrefix(name, "dropped/"); ok {
				if l.Dropped == nil {
					l.Dropped = map[string]uint64{}
				}
				l.Dropped[rule] += uint64(n)
				continue
			}
			if v, ok := c.Mean(name); ok && strings.Contains(name, "/") {
				l.Tasks[name] = v
			}
		}
	}
	if !c.Began.IsZero() {
		l.Seconds = c.Stopped.Sub(c.Began).Seconds()
		l.SamplesPerSecond = float64(l.Samples) / l.Seconds
	}
	l.Loss, l.AUC = c.Known("loss"), c.Known("auc")
	err := d.bus.DeadLetters().Each(ctx, func(p bus.Parked) error {
		if p.By == "trainer" {
			l.Parked++
			if p.More != nil {
				l.Parked += p.More.Count - 1
			}
		}
		return nil
	})
	return l, err
}

// Print writes the report for people.
func (l *Learnt) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "model\t%s, checkpoint %d\n", l.Model, l.Checkpoint)
	if l.Parent != "" {
		fmt.Fprintf(t, "begun with\t%s\n", l.Parent)
	}
	if l.Stdin {
		fmt.Fprintf(t, "input\tstandard input, %d records, which cannot be read again: a job of it is not resumed\n", l.Records)
	} else {
		fmt.Fprintf(t, "files\t%d with %d records, learnt %d times\n", l.Files, l.Records, l.Epochs)
	}
	fmt.Fprintf(t, "learnt\t%d records in all, %d parked, %d left\n", l.Learnt, l.Parked, l.Left)
	fmt.Fprintf(t, "this start\t%d samples in %d steps, %.1f s, %.0f samples/s\n", l.Samples, l.Steps, l.Seconds, l.SamplesPerSecond)
	for _, rule := range slices.Sorted(maps.Keys(l.Dropped)) {
		fmt.Fprintf(t, "dropped\t%d samples by the rule %q\n", l.Dropped[rule], rule)
	}
	fmt.Fprintf(t, "loss\t%s\n", Figure(l.Loss))
	fmt.Fprintf(t, "AUC\t%s\n", Figure(l.AUC))
	for _, name := range slices.Sorted(maps.Keys(l.Tasks)) {
		fmt.Fprintf(t, "  %s\t%.6f\n", name, l.Tasks[name])
	}
	fmt.Fprintf(t, "export\t%s, version %d\n", l.Exports, l.Version)
	if l.Parked > 0 {
		fmt.Fprintf(t, "parked\tmonolith dlq ls --dir %s shows why\n", l.Dir)
	}
	return t.Flush()
}

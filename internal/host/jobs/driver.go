package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/jobs/course"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/trainer/source"
)

// driver takes one job to its end, as a user would: by commands and requests, and by looking at
// the log.
type driver struct {
	cfg    *Train
	set    *files.Set  // nil: stream is learnt
	stream *files.Pipe // of standard input
	stack  *host.Stack
	stderr io.Writer
	began  int64 // steps that were done before this start
	ends   int64 // step at which the job ends; 0: not known

	bus     bus.Bus
	catalog *follow.Follower[models.State]
	cuts    *follow.Follower[lineage.State]
	course  *follow.Follower[course.State]
	stop    context.CancelFunc
	done    *errgroup.Group
}

func (d *driver) job() string { return d.cfg.spec.GetName() }

// open connects and follows the log; close ends both.
func (d *driver) open(ctx context.Context) (err error) {
	conn := d.stack.Config.Logs
	if d.bus, err = conn.Dial(ctx, "monolith train"); err != nil {
		return err
	}
	begin, err := d.bus.Log().Last(ctx)
	if err != nil {
		return errors.Join(err, d.bus.Close())
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop, d.done = stop, new(errgroup.Group)
	d.catalog = follow.New(d.bus.Log(), registry.Catalog.Only(conn.BZID), follow.Options{})
	d.cuts = follow.New(d.bus.Log(), registry.Lineage.Only(conn.BZID), follow.Options{})
	d.course = follow.New(d.bus.Log(), course.View(conn.BZID, d.job(), begin), follow.Options{})
	d.done.Go(func() error { return d.catalog.Run(run) })
	d.done.Go(func() error { return d.cuts.Run(run) })
	d.done.Go(func() error { return d.course.Run(run) })
	for _, ready := range []<-chan struct{}{d.catalog.Ready(), d.cuts.Ready(), d.course.Ready()} {
		select {
		case <-ready:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), d.close())
		}
	}
	return nil
}

func (d *driver) close() error {
	d.stop()
	err := d.done.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, d.bus.Close())
}

// lineage is the job as the log has it.
func (d *driver) lineage() (j lineage.Job, others []string) {
	d.cuts.Read(func(s lineage.State) {
		j = s.Jobs[d.job()]
		others = slices.DeleteFunc(slices.Sorted(maps.Keys(s.Jobs)), func(name string) bool { return name == d.job() })
	})
	return j, others
}

// plan finds out what is left to learn: the limit of the steps, which a job that was killed keeps, and
// whether the job has learnt all that this command asks for. A folder of another job, model or set of
// files is refused.
func (d *driver) plan() (limit int64, over bool, err error) {
	j, others := d.lineage()
	dir := d.stack.Config.Dir
	if len(others) > 0 {
		return 0, false, fmt.Errorf("%w: %s is the folder of job %v: name another one with --dir", flags.ErrUsage, dir, others)
	}
	var declared *model.ModelSpec
	d.catalog.Read(func(s models.State) { declared = s.Models[d.job()].Spec.V })
	if declared != nil && !proto.Equal(declared, d.cfg.spec) {
		return 0, false, fmt.Errorf("%w: the job in %s learns another declaration of model %s than %s: bring that one back, or name another folder with --dir", flags.ErrUsage, dir, d.job(), d.cfg.Spec)
	}
	back, err := d.cfg.Restore.Pending(d.job(), j)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	if why := d.cfg.Restore.Done(d.job(), j); why != "" {
		fmt.Fprintln(d.stderr, why)
	}
	b := j.Started.V
	if b == nil {
		limit, err = d.begins(j)
		return limit, false, err
	}
	f := b.GetFiles()
	if d.stream != nil || len(f.GetPatterns()) == 1 && f.GetPatterns()[0] == source.Stdin {
		return 0, false, d.unresumed(j)
	}
	if b.GetTopicId() != d.set.Hash() {
		return 0, false, fmt.Errorf("%w: the job in %s has learnt from %d files with %d records (hash %.12s), --files names %d with %d (hash %.12s): offsets would name other records. Bring the files back as they were, in their order and with --partitions %d, or name another folder with --dir",
			flags.ErrUsage, dir, f.GetFiles(), f.GetRecords(), b.GetTopicId(), d.set.Files(), d.set.Records(), d.set.Hash(), b.GetPartitions())
	}
	if !j.Stopped {
		if m := d.cfg.MaxSteps; d.cfg.Steps == 0 && m != 0 && m != f.GetMaxSteps() || uint32(d.cfg.Epochs) != f.GetEpochs() {
			return 0, false, fmt.Errorf("%w: the job in %s was begun with --max-steps %d --epochs %d: let it end with these, and then go on with others", flags.ErrUsage, dir, f.GetMaxSteps(), f.GetEpochs())
		}
		return f.GetMaxSteps(), false, nil
	}
	return d.goesOn(j, back)
}

// goesOn is plan of a job that has ended, and goes on from its last checkpoint, or from the one back to which it is sent.
func (d *driver) goesOn(j lineage.Job, back int64) (limit int64, over bool, err error) {
	at := map[int32]int64{}
	if all := j.Restorable(); back > 0 {
		at = j.Checkpoint(back).GetOffsets()
	} else if len(all) > 0 {
		at = all[0].GetOffsets()
	}
	batch := int64(d.cfg.Batch)
	limit, over = d.cfg.limitOf(d.steps(at)), true
	for p, end := range d.set.Ends(batch, limit) {
		over = over && at[p] >= end
		if d.cfg.Deterministic && at[p] < end && at[p]%batch != 0 {
			return 0, false, fmt.Errorf("%w: the deterministic job in %s stands at record %d of partition %d, which is no multiple of --batch %d: give the --batch that it was begun with", flags.ErrUsage, d.stack.Config.Dir, at[p], p, batch)
		}
	}
	if e := j.Started.V.GetFiles().GetEpochs(); !over && d.cfg.Deterministic && e != uint32(d.cfg.Epochs) {
		return 0, false, fmt.Errorf("%w: the deterministic job in %s was begun with --epochs %d, from which its order follows: give the same, or name another folder with --dir", flags.ErrUsage, d.stack.Config.Dir, e)
	}
	return limit, over, nil
}

// steps is how many led to these offsets.
func (d *driver) steps(at map[int32]int64) (n int64) {
	batch := int64(d.cfg.Batch)
	for _, offset := range at {
		n += (offset + batch - 1) / batch
	}
	return n
}

// begins is plan of a job that has not begun. One that begins with another job's checkpoint must be able
// to take it, and to find its records.
func (d *driver) begins(j lineage.Job) (limit int64, err error) {
	if !d.cfg.Restore.Given() {
		return d.cfg.limitOf(0), nil
	}
	if all := j.Restorable(); len(all) > 0 { // it has taken it already
		return d.cfg.limitOf(d.steps(all[0].GetOffsets())), nil
	}
	p, err := d.cfg.Restore.Find()
	if err == nil {
		err = p.Fits(d.cfg.spec)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	at := p.Offsets()
	for partition, offset := range at {
		if partition >= d.set.Partitions() || offset > d.set.End(partition) {
			return 0, fmt.Errorf("%w: --restore-offsets: the checkpoint stands at record %d of partition %d, which these files do not have: name those that it has learnt from, with its --partitions, or leave the flag out", flags.ErrUsage, offset, partition)
		}
	}
	return d.cfg.limitOf(d.steps(at)), nil
}

// learn declares the model, has the job start, and returns once it is learnt to its end.
func (d *driver) learn(ctx context.Context) error {
	if j, _ := d.lineage(); j.Stopped {
		if err := d.request(ctx); err != nil {
			return err
		}
	}
	if err := d.declare(ctx); err != nil {
		return err
	}
	drained := make(chan error, 1)
	if d.stream != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { drained <- d.drain(ctx) }()
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	var told course.Progress
	var toldAt time.Time
	var ended time.Time
	for said := (map[string]bool{}); ; {
		changed := d.course.Changed()
		var c course.State
		d.course.Read(func(s course.State) { c = s })
		switch {
		case c.Failed != "":
			return fmt.Errorf("the job learns nothing useful any more: %s", c.Failed)
		case c.Stopped.IsZero():
			ended = time.Time{}
		case ended.IsZero():
			ended = time.Now()
			continue
		case c.Final(), time.Since(ended) > finalFiguresPatience:
			return nil
		}
		select {
		case <-changed:
		case err := <-drained:
			if err != nil {
				return err
			}
		case <-look.C:
			d.complain(said)
			if p, ok := c.Progress(d.began, d.ends); ok && p.At.After(told.At) && c.Stopped.IsZero() && time.Since(toldAt) >= progressEvery {
				told, toldAt = p, time.Now()
				if err := p.Print(d.stderr, d.cfg.AsJSON); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// complain says each problem of the roles once.
func (d *driver) complain(said map[string]bool) {
	for _, p := range d.stack.Problems() {
		if text := p.String(); !said[text] {
			said[text] = true
			fmt.Fprintln(d.stderr, "waiting:", text)
		}
	}
}

// request asks a stopped job to go on.
func (d *driver) request(ctx context.Context) error {
	subject := training.Subject(d.cfg.BZID, d.job()).Request()
	_, err := d.bus.Log().Append(ctx, bus.Draft{Subject: subject, Expect: bus.Any,
		Event: &training.Event{Body: &training.Event_StartRequested{StartRequested: &training.StartRequested{Reason: "monolith train"}}}})
	if err != nil {
		return fmt.Errorf("ask the job to go on: %w", err)
	}
	return nil
}

const (
	finalFiguresPatience = 5 * time.Second // for the figures of trainers behind the job's end
	progressEvery        = 9 * time.Second // the least time between two lines of progress: trainers tell their figures every ten seconds

	declarePatience = time.Minute
	declareCall     = 10 * time.Second
)

// declare makes the model known, unless it is.
func (d *driver) declare(ctx context.Context) error {
	var known bool
	d.catalog.Read(func(s models.State) { known = s.Models[d.job()].Spec.V != nil })
	if known {
		return nil
	}
	body, err := events.Marshal(&model.DeclareRequested{Spec: d.cfg.spec})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, declarePatience)
	defer cancel()
	if _, err := connect.Call(ctx, d.bus, d.cfg.BZID, "portal.declare", body, declareCall); err != nil {
		return fmt.Errorf("declare the model: %w", err)
	}
	return nil
}

// total is the step at which the job ends whose steps have that limit, 0 where the end is not known.
func (d *driver) total(limit int64) (n int64) {
	if d.stream != nil {
		return 0
	}
	batch := int64(d.cfg.Batch)
	for _, end := range d.set.Ends(batch, limit) {
		n += (end + batch - 1) / batch
	}
	return n
}

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/source"
)

const (
	// drainPatience bounds how long an interrupted job takes to learn what it has read.
	drainPatience = time.Minute
	drainLook     = 100 * time.Millisecond
	drainCall     = 5 * time.Second
)

// unresumed says what a folder still holds of a job that cannot go on, because standard input is part of
// it.
func (d *driver) unresumed(j lineage.Job) error {
	dir, held := d.stack.Config.Dir, "it has no checkpoint"
	if all := j.Restorable(); len(all) > 0 {
		var n int64
		for _, offset := range all[0].GetOffsets() {
			n += offset
		}
		held = fmt.Sprintf("checkpoint %d holds the first %d records", all[0].GetId(), n)
	}
	if j.Started.V.GetFiles().GetPatterns()[0] != source.Stdin {
		return fmt.Errorf("%w: the job in %s learns files, and %s: name these, or another folder with --dir", flags.ErrUsage, dir, held)
	}
	return fmt.Errorf("%w: the job in %s learnt standard input, which cannot be read again: %s, and what was read behind them is lost to it. evaluate, predict and export take that checkpoint; for other records name another folder with --dir", flags.ErrUsage, dir, held)
}

// run runs the roles until the job is learnt to its end. An interrupt stops it there; of a stream it
// ends what is read, and what was read is learnt first: nobody could bring it back.
func (d *driver) run(ctx context.Context) error {
	run, cancel := context.WithCancel(ctx)
	if d.stream != nil {
		run, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer context.AfterFunc(ctx, func() {
			_ = d.stream.Close() // it was only read
			time.AfterFunc(drainPatience, cancel)
		})()
	}
	defer cancel()
	running, learnt := make(chan error, 1), make(chan error, 1)
	go func() { running <- d.stack.Run(run, func() {}) }()
	go func() { learnt <- d.learn(run) }()
	select {
	case err := <-learnt:
		cancel()
		return errors.Join(err, <-running)
	case err := <-running:
		cancel()
		<-learnt
		switch {
		case err != nil:
			return err
		case d.stream != nil:
			return fmt.Errorf("stopped: %w", d.unresumed(d.now()))
		}
		return fmt.Errorf("stopped: the same command with --dir %s goes on", d.stack.Config.Dir)
	}
}

// drain asks the job to stop once every shard has learnt what the stream gave.
func (d *driver) drain(ctx context.Context) error {
	select {
	case <-d.stream.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	n, _ := d.stream.End()
	for !d.hasLearnt(ctx, n) {
		if err := retry.Sleep(ctx, drainLook); err != nil {
			return err
		}
	}
	_, err := d.bus.Log().Append(ctx, bus.Draft{Subject: training.Subject(d.cfg.BZID, d.job()).Request(), Expect: bus.Any,
		Event: &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: "end of standard input"}}}})
	if err != nil {
		return fmt.Errorf("ask the job to stop at the end of standard input: %w", err)
	}
	return nil
}

// hasLearnt says whether every shard of the job, which runs, has learnt n records of its partition.
func (d *driver) hasLearnt(ctx context.Context, n int64) bool {
	if d.now().Started.V == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, drainCall)
	defer cancel()
	for i := range d.cfg.Shards {
		var st shardcmd.State
		reply, err := d.bus.Commands().Call(ctx, d.cfg.BZID, shardcmd.Command(d.job(), i, shardcmd.Offsets), []byte("{}"))
		if err != nil || json.Unmarshal(reply, &st) != nil || st.Next[0] < n {
			return false
		}
	}
	return true
}

// now is the job as the log has it.
func (d *driver) now() lineage.Job {
	j, _ := d.lineage()
	return j
}

package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// control asks the chief of a job that runs.
type control struct {
	conn     connect.Config
	job      string
	reason   string
	export   bool
	keep     bool
	batches  uint64
	number   int64 // of the checkpoint that is kept, released or restored; 0: none
	patience time.Duration
}

// ControlCommand is monolith job with its subcommands: each is a command of the job's chief.
func ControlCommand() *cobra.Command {
	var c control
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Pause a training job that runs, have it go on, save it, keep what it saved or go back to it, or ask how it is",
		Long: "Calls the job's chief over NATS and prints its answer, a line of JSON. A paused job takes no more records\n" +
			"and keeps all else: its shards, partitions and offsets. It stays paused, whatever is restarted, until it\n" +
			"is resumed or stopped. A checkpoint that is kept stays on disk, and its export, until it is released, and does\n" +
			"not count as one of --keep-checkpoints.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	fs := cmd.PersistentFlags()
	c.conn.Register(fs)
	fs.StringVar(&c.job, "job", host.JobName, "training `job`; monolith train calls it as the model")
	fs.DurationVar(&c.patience, "timeout", 30*time.Second, "how long to wait for the answer")
	status := c.command("status", "Tell whether the job runs or is paused, which trainers rest, and how far it is")
	pause := c.command("pause", "Have the job take no more records, and wait until its trainers rest")
	resume := c.command("resume", "Have a paused job go on")
	save := c.command("checkpoint", "Have the job save a checkpoint, paused or not")
	keep := c.command("keep", "Have a checkpoint stay on disk, however many newer ones there are")
	release := c.command("release", "Have a checkpoint that was kept count again as one of --keep-checkpoints")
	restore := c.command("restore", "Take the whole job back to a checkpoint of its own, from which it learns on")
	dump := c.command("dump", "Have each trainer write the features of its next batches to files, which monolith features shows")
	dump.Flags().Uint64Var(&c.batches, "batches", 100, "how many `batches` of each trainer")
	for _, x := range []*cobra.Command{keep, release, restore} {
		x.Flags().Int64Var(&c.number, "checkpoint", 0, "`number` of the checkpoint")
		_ = x.MarkFlagRequired("checkpoint") // the flag is there
	}
	for _, x := range []*cobra.Command{pause, resume, save, keep, release, restore, dump} {
		x.Flags().StringVar(&c.reason, "reason", "", "`why`, for whoever reads the log")
	}
	save.Flags().BoolVar(&c.export, "export", false, "with an export of it")
	save.Flags().BoolVar(&c.keep, "keep", false, "keep it: it stays on disk until it is released")
	cmd.AddCommand(status, pause, resume, save, keep, release, restore, dump)
	return cmd
}

// command is the one that calls trainer.<job>.<endpoint>.
func (c *control) command(endpoint, short string) *cobra.Command {
	return &cobra.Command{Use: endpoint, Short: short, Args: flags.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		body := map[string]any{}
		if c.reason != "" {
			body["reason"] = c.reason
		}
		if c.export {
			body["export"] = true
		}
		if c.keep {
			body["keep"] = true
		}
		if cmd.Flags().Lookup("batches") != nil {
			body["batches"] = c.batches
		}
		if c.number != 0 {
			body["checkpoint"] = c.number
		}
		payload, err := json.Marshal(body)
		if err != nil {
			return err
		}
		b, err := c.conn.Dial(cmd.Context(), "monolith job")
		if err != nil {
			return err
		}
		defer func() { _ = b.Close() }() // the answer is here
		ctx, cancel := context.WithTimeout(cmd.Context(), c.patience)
		defer cancel()
		reply, err := connect.Call(ctx, b, c.conn.BZID, "trainer."+events.Escape(c.job)+"."+endpoint, payload, c.patience)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
		return err
	}}
}

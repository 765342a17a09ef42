// Command monolith is every service of Monolith in one binary: a role each
// (monolith portal, monolith ps, ...), all of them (monolith up), the main job with a
// report (monolith demo), and the tools to look into the logs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/compat/cli"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/host/call"
	"github.com/monolith-go/monolith/internal/host/canary"
	"github.com/monolith-go/monolith/internal/host/dlq"
	"github.com/monolith-go/monolith/internal/host/doctor"
	"github.com/monolith-go/monolith/internal/host/jobs"
	"github.com/monolith-go/monolith/internal/host/tpurunner"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
	loadtest "github.com/monolith-go/monolith/loadtest/command"
)

// Exit codes: scripts tell a wrong call from a failure.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// modelServer is TensorFlow Serving's program, and the role that a link of that name is.
const modelServer, modelServerRole = "tensorflow_model_server", "modelserver"

func main() { os.Exit(run(arguments(os.Args), os.Stdout, os.Stderr)) }

// arguments are those of this program, behind the name by which it was called.
func arguments(argv []string) []string {
	if filepath.Base(argv[0]) == modelServer {
		return append([]string{modelServerRole}, argv[1:]...)
	}
	return argv[1:]
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer func() { _ = vfs.CloseIdle() }() // nothing is written any more
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// Joined errors come on lines of their own; scripts and logs read one.
	fmt.Fprintln(stderr, "monolith:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, flags.ErrUsage) {
		return exitUsage
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "monolith",
		Short: "Real-time recommendation training and serving, where every state is a fold of a log",
		Long: "Monolith learns from a stream of clicks or ratings and serves what it learnt a moment later.\n" +
			"Its services share nothing but NATS JetStream, Kafka, files and public ports.\n\n" +
			"Start with: monolith demo",
		Version:       flags.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unknown command %q (see monolith --help)", flags.ErrUsage, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w (see %s --help)", flags.ErrUsage, err, c.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run everything:"},
		&cobra.Group{ID: "look", Title: "Look into the logs:"},
		&cobra.Group{ID: "compat", Title: "The original's command lines:"},
		&cobra.Group{ID: "role", Title: "Run one role:"},
	)
	for _, c := range append([]*cobra.Command{newDemo(), newUp(), newTrain(), newTrainAndEvaluate(), newEvaluate(), newPredict(), newExport(), jobs.CheckpointCommand(), jobs.ControlCommand(), newDeclare(), newModel(), canary.Command(), newVerify(), auth.Command(), loadtest.Command(), loadtest.Learn()}, benchCommands()...) {
		c.GroupID = "run"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{newEvents(), newReplay(), dlq.Command(), call.Command(), newExplain(), jobs.FeaturesCommand(), doctor.Command(), newArchive(), newTrim()} {
		c.GroupID = "look"
		root.AddCommand(c)
	}
	for _, c := range append(cli.Commands(), tpurunner.Command()) {
		c.GroupID = "compat"
		root.AddCommand(c)
	}
	roles := []*cobra.Command{newNATS(), host.RunnerCommand()}
	for _, r := range host.Roles {
		roles = append(roles, newRole(r))
	}
	for _, c := range roles {
		c.GroupID = "role"
		root.AddCommand(c)
	}
	return root
}

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/demo"
)

func newDemo() *cobra.Command {
	cfg := demo.Config{Born: time.Now()}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the main job: stream ratings, learn, serve, and report",
		Long: "Starts NATS, Kafka and all seven services, streams ratings into Kafka, scores each by the\n" +
			"serving path before the trainer sees its label, freezes a copy of the model at half time,\n" +
			"loads the serving port meanwhile, and ends with a report. With --dir, a run that was killed\n" +
			"goes on where it was.",
		Example: "  monolith demo\n  monolith demo --data ratings.csv --json",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return err
			}
			return demo.Run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cfg.Register(cmd.Flags())
	return cmd
}

package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/demo"
)

func newUp() *cobra.Command {
	var cfg host.Config
	var file string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything and keep it running",
		Long: "Runs NATS, Kafka and all roles, embedded in this process (--processes: a process each),\n" +
			"and declares the model of --spec, or the movie-ranking one. State lasts in --dir: start it again\n" +
			"and it goes on.",
		Example: "  monolith up --spec ranker.yaml --ratings-topic clicks",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return err
			}
			spec := modelspec.MovieRanking()
			if file != "" {
				var err error
				if spec, err = specfile.Read(file, cmd.InOrStdin()); err != nil {
					return err
				}
				cfg.Model, cfg.Job = spec.GetName(), cmp.Or(cfg.Job, spec.GetName())
			}
			return host.Up(cmd.Context(), cfg, cmd.ErrOrStderr(), func(ctx context.Context, conn connect.Config) error {
				return demo.Declare(ctx, conn, spec)
			})
		},
	}
	cfg.Register(cmd.Flags(), "monolith-data")
	cfg.RegisterPorts(cmd.Flags())
	cmd.Flags().StringVar(&file, "spec", "", "YAML `file` that declares the model (-: standard input); empty: the demo's, "+host.ModelName)
	cmd.Flags().StringVar(&cfg.Job, "job", "", "`name` of the training job (default: the model's)")
	cfg.Restore.Register(cmd.Flags())
	cmd.Flags().StringVar(&cfg.Format, "format", input.JSON.String(), input.FormatUsage)
	return cmd
}

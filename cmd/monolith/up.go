package main

import (
	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/loadtest/demo"
)

func newUp() *cobra.Command {
	var cfg host.Config
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything and keep it running",
		Long: "Runs NATS, Kafka and all roles, embedded in this process (--processes: a process each),\n" +
			"and declares the movie-ranking model. State lasts in --dir: start it again and it goes on.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Validate(); err != nil {
				return err
			}
			return host.Up(cmd.Context(), cfg, cmd.ErrOrStderr(), demo.DeclareMovies)
		},
	}
	cfg.Register(cmd.Flags(), "monolith-data")
	cmd.Flags().StringVar(&cfg.Format, "format", input.JSON.String(), input.FormatUsage)
	return cmd
}

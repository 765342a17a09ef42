package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/modelspec"
)

func newUp() *cobra.Command {
	var cfg stackConfig
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything and keep it running",
		Long: "Runs NATS, Kafka and all roles, embedded in this process (--processes: a process each),\n" +
			"and declares the movie-ranking model. State lasts in --dir: start it again and it goes on.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.validate(); err != nil {
				return err
			}
			return up(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	cfg.register(cmd.Flags(), "monolith-data")
	return cmd
}

func up(ctx context.Context, cfg stackConfig, w io.Writer) (err error) {
	s, err := startLogs(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(chan error, 1)
	ready := make(chan struct{})
	go func() { running <- s.run(ctx, func() { close(ready) }) }()
	began := time.Now()
	if err := declareMovies(ctx, s.cfg.conn); err != nil && ctx.Err() == nil {
		cancel()
		return errors.Join(err, <-running)
	}
	select {
	case <-ready:
		s.banner(w, time.Since(began))
	case <-ctx.Done():
	case err := <-running:
		return err
	}
	return <-running
}

// declareMovies makes the movie-ranking model known, so that training can begin. What
// is served is the user's to say.
func declareMovies(ctx context.Context, conn connection) error {
	j, err := openJob(ctx, conn)
	if err != nil {
		return err
	}
	return errors.Join(j.declare(ctx, modelspec.MovieRanking()), j.close())
}

func (s *stack) banner(w io.Writer, took time.Duration) {
	for _, n := range s.notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintf(w, "monolith is up after %.1fs\n  data       %s\n  NATS       %s\n  Kafka      %s\n  status     http://%s/readyz, /metrics\n",
		took.Seconds(), s.cfg.dir, s.cfg.conn.nats, s.cfg.kafka, s.status.addr)
	fmt.Fprintf(w, "Try: nats -s %s sub 'monolith.>'\n", s.cfg.conn.nats)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

func newUp() *cobra.Command {
	var cfg stackConfig
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything and keep it running",
		Long: "Runs NATS, Kafka and all roles, embedded in this process (--processes: a process each),\n" +
			"and declares the movie-ranking model. State lasts in --dir: start it again and it goes on.",
		Args: flags.NoArgs,
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
func declareMovies(ctx context.Context, conn connect.Config) error {
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
	fmt.Fprintf(w, "monolith is up after %.1fs\n", took.Seconds())
	for _, l := range [][2]string{
		{"data", s.cfg.dir}, {"NATS", connect.Redacted(s.cfg.conn.NATS)}, {"Kafka", s.cfg.kafka},
		{"ZooKeeper", fmt.Sprintf("127.0.0.1:%d", s.cfg.zkPort)},
		{"gRPC", fmt.Sprintf("127.0.0.1:%d (TensorFlow Serving)", s.cfg.grpcPort)},
		{"REST", fmt.Sprintf("http://127.0.0.1:%d/v1/models/%s", s.cfg.restPort, modelName)},
		{"status", fmt.Sprintf("http://%s/readyz and /metrics", s.status.addr)},
		{"exports", s.exports()},
	} {
		fmt.Fprintf(w, "  %-10s %s\n", l[0], l[1])
	}
	fmt.Fprintf(w, "Load the model: nats -s %s req monolith.%s.cmd.portal.load '{\"modelName\":%q,\"modelDir\":%q,\"job\":%q,\"replicas\":%d}'\n",
		connect.Redacted(s.cfg.conn.NATS), s.cfg.conn.BZID, modelName, s.exports(), jobName, s.cfg.replicas)
}

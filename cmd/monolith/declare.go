package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// declareTimeout is how long the portal may take to answer.
const declareTimeout = 10 * time.Second

func newDeclare() *cobra.Command {
	var conn connect.Config
	cmd := &cobra.Command{
		Use:   "declare [FILE]",
		Short: "Declare a model, so that parameter servers and trainers can begin",
		Long: "Sends the YAML spec in FILE (-: standard input) to the portal and prints the sequence of\n" +
			"the fact. Without FILE it is the demo's model, " + host.ModelName + ". Roles that are started alone wait\n" +
			"for it; 'up' and 'demo' declare theirs themselves.",
		Example: "  monolith declare\n  monolith declare ranker.yaml --nats nats://10.0.0.5:4222",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%w: declare takes one file, got %q", flags.ErrUsage, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := modelspec.MovieRanking()
			if len(args) == 1 {
				var err error
				if spec, err = specfile.Read(args[0], cmd.InOrStdin()); err != nil {
					return err
				}
			}
			b, err := conn.Dial(cmd.Context(), "monolith declare")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			reply, err := declare(cmd.Context(), b, conn.BZID, spec)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
			return err
		},
	}
	conn.Register(cmd.Flags())
	return cmd
}

// declare asks the portal, and returns its answer.
func declare(ctx context.Context, b bus.Bus, bzid string, spec *model.ModelSpec) ([]byte, error) {
	body, err := events.Marshal(&model.DeclareRequested{Spec: spec})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	return b.Commands().Call(ctx, bzid, "portal.declare", body)
}

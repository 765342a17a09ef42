package doctor

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Command is monolith
func Command() *cobra.Command {
	var cfg Config
	var topics host.Topics
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a deployment, and how it is mended",
		Long: "Looks at NATS and its streams, leases, heartbeats, plans, shards, ports, clocks, Kafka's topics, the disk and dead letters,\n" +
			"changes nothing, and says of each thing what is wrong, how to mend it, and which part of docs/operations.md explains it.\n" +
			"It exits with 1 where anything is wrong.",
		Example: "  monolith doctor --nats nats://127.0.0.1:4222 --nats-monitor http://127.0.0.1:8222 --json",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Conn.Validate(); err != nil {
				return err
			}
			t := topics.Of(cfg.Conn.BZID)
			cfg.Topics = []string{t.Ratings, t.Predictions}
			found := Examine(cmd.Context(), cfg)
			if err := Print(cmd.OutOrStdout(), found, asJSON); err != nil {
				return err
			}
			if n := Wrong(found); n > 0 {
				return fmt.Errorf("%d of %d things are wrong", n, len(found))
			}
			return nil
		},
	}
	cfg.Register(cmd.Flags())
	topics.Register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/verify"
)

func newVerify() *cobra.Command {
	var cfg verify.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Recompute every figure of a report from the logs",
		Long: "Reads Kafka, JetStream from sequence 1, the deltas, the checkpoints and, while the system is\n" +
			"up, the serving ports, and computes the report's figures again. Exits 1 when one differs.\n" +
			"Works on the folder of a demo that runs (--keep) or has ended. A folder without a report, as\n" +
			"'up' makes it, is proved by its logs alone: checkpoints, deltas, offsets and views.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := cfg.Run(cmd.Context())
			if err != nil {
				return err
			}
			bad := 0
			for _, c := range checks {
				if !c.OK {
					bad++
				}
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"ok": bad == 0, "checks": checks}); err != nil {
					return err
				}
			} else {
				for _, c := range checks {
					fmt.Fprintln(cmd.OutOrStdout(), c)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%d checks, %d failed\n", len(checks), bad)
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d checks failed: each FAIL above says what the logs do not bear out", bad, len(checks))
			}
			return nil
		},
	}
	cfg.Register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

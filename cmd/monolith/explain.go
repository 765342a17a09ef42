package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/explain"
	"github.com/monolith-go/monolith/internal/process/flags"
)

func newExplain() *cobra.Command {
	var conn connect.Config
	var brokers string
	var access kafka.Credentials
	var topics host.Topics
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain REQUEST-ID",
		Short: "Say what a prediction stood on: rows, deltas, Kafka ranges, facts",
		Long: "Finds the impressions of a request by its x-request-id (it asked for them by x-impression: 1),\nand for each row it read the delta " +
			"that wrote it, the epoch and step of the training shard, the Kafka records learnt with it,\n" +
			"and the facts that put the model there.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: monolith explain REQUEST-ID", flags.ErrUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := access.Access()
			if err != nil {
				return fmt.Errorf("%w: %w", flags.ErrUsage, err)
			}
			b, err := conn.Dial(cmd.Context(), "monolith explain")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			e, err := explain.Find(cmd.Context(), b, a, flags.List(brokers), conn.BZID, topics.Of(conn.BZID).Predictions, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
			}
			return e.Text(cmd.OutOrStdout())
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().StringVar(&brokers, "kafka", flags.Env("MONOLITH_KAFKA", "127.0.0.1:9092"), "Kafka `brokers` (MONOLITH_KAFKA)")
	access.Register(cmd.Flags())
	cmd.Flags().StringVar(&topics.Predictions, "predictions-topic", "", "`topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/history"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/registry"
)

func newReplay() *cobra.Command {
	var conn connect.Config
	var view, until string
	var diff, hashOnly bool
	cmd := &cobra.Command{
		Use:   "replay [A B]",
		Short: "Fold a view from the first event, up to any moment, and print it",
		Long: "Reads the log from sequence 1 and prints the view as it was at --until (a sequence, a time\n" +
			"or an age). With --diff it takes two such positions and prints what changed between them.\n" +
			"Views: " + strings.Join(registry.Names(), ", ") + ".",
		Example: "  monolith replay --view fleet --until 120\n  monolith replay --view plan --diff 100 200",
		Args: func(cmd *cobra.Command, args []string) error {
			if diff && len(args) != 2 {
				return fmt.Errorf("%w: --diff takes two positions: monolith replay --view %s --diff A B", flags.ErrUsage, view)
			}
			if !diff {
				return flags.NoArgs(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			b, err := conn.Dial(ctx, "monolith replay")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			at := func(s string) ([]byte, string, uint64, error) {
				seq, err := history.EndOf(ctx, b.Log(), s)
				if err != nil {
					return nil, "", 0, err
				}
				state, hash, err := registry.Replay(ctx, b.Log(), view, conn.BZID, seq)
				return state, hash, seq, err
			}
			out := cmd.OutOrStdout()
			if diff {
				before, _, _, err := at(args[0])
				if err != nil {
					return err
				}
				after, _, _, err := at(args[1])
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(out, registry.Diff(before, after))
				return err
			}
			state, hash, seq, err := at(until)
			if err != nil {
				return err
			}
			if hashOnly {
				return json.NewEncoder(out).Encode(map[string]any{"view": view, "seq": seq, "hash": hash})
			}
			_, err = fmt.Fprintf(out, "%s\n", state)
			return err
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().StringVar(&view, "view", "fleet", "`name` of the view: "+strings.Join(registry.Names(), ", "))
	cmd.Flags().StringVar(&until, "until", "", "`sequence, time or age` to stop at; empty: the end")
	cmd.Flags().BoolVar(&diff, "diff", false, "print what changed between two positions")
	cmd.Flags().BoolVar(&hashOnly, "hash", false, "print the state's hash alone, as JSON")
	return cmd
}

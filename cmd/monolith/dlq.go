package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
)

func newDLQ() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "What was refused, and why: list it, show it, send it again",
		Args: func(cmd *cobra.Command, args []string) error {
			return fmt.Errorf("%w: monolith dlq ls | show SEQ | redrive SEQ", errUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	conn.register(cmd.PersistentFlags())
	with := func(f func(*cobra.Command, bus.DeadLetters, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			b, err := conn.dial(cmd.Context(), "monolith dlq")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			return f(cmd, b.DeadLetters(), args)
		}
	}
	var asJSON bool
	ls := &cobra.Command{Use: "ls", Short: "List what was refused", Args: noArgs,
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, _ []string) error {
			all, err := letters.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				if all == nil {
					all = []bus.Parked{}
				}
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SEQ\tWHEN\tBY\tFROM\tREDRIVEN\tREASON")
			for _, p := range all {
				fmt.Fprintf(w, "%d\t%s\t%s\t%s %d\t%v\t%s\n", p.Seq, p.Time.UTC().Format(time.RFC3339), p.By, p.Stream, p.StreamSeq, p.Redriven, p.Reason)
			}
			return w.Flush()
		})}
	ls.Flags().BoolVar(&asJSON, "json", false, "print a JSON list, with the bytes")
	show := &cobra.Command{Use: "show SEQ", Short: "Show one of them whole", Args: oneSeq,
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, args []string) error {
			p, err := letters.Show(cmd.Context(), mustSeq(args))
			if err != nil {
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(struct {
				bus.Parked
				Text string `json:"text"` // the bytes as text, to read
			}{p, string(p.Data)})
		})}
	var file string
	redrive := &cobra.Command{Use: "redrive SEQ", Short: "Publish it again on its subject, mended if --data names a file", Args: oneSeq,
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, args []string) error {
			var data []byte
			if file != "" {
				var err error
				if data, err = os.ReadFile(file); err != nil {
					return fmt.Errorf("read the mended body: %w", err)
				}
			}
			seq, err := letters.Redrive(cmd.Context(), mustSeq(args), data)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]uint64{"seq": seq})
		})}
	redrive.Flags().StringVar(&file, "data", "", "`file` with the mended body; empty: the bytes as they were")
	cmd.AddCommand(ls, show, redrive)
	return cmd
}

func oneSeq(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if _, err := strconv.ParseUint(args[0], 10, 64); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %s takes one sequence, as monolith dlq ls prints them", errUsage, cmd.CommandPath())
}

// mustSeq reads what oneSeq has already accepted.
func mustSeq(args []string) uint64 {
	n, _ := strconv.ParseUint(args[0], 10, 64)
	return n
}

// Package dlq is the command that lists, shows, sends again and removes dead letters.
package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// withLetters runs f on the dead letters of the connection's namespace.
type withLetters func(f func(*cobra.Command, bus.DeadLetters, []string) error) func(*cobra.Command, []string) error

// Command is monolith dlq with its subcommands.
func Command() *cobra.Command {
	var conn connect.Config
	var dir string
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "What was refused, and why: list it, show it, send it again, remove it",
		Args: func(cmd *cobra.Command, args []string) error {
			return fmt.Errorf("%w: monolith dlq ls | show SEQ | redrive SEQ | rm SEQ | purge", flags.ErrUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	conn.Register(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "`folder` of a job or a system that need not run, as train, demo or up made it; empty: the one at --nats")
	with := func(f func(*cobra.Command, bus.DeadLetters, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			b, closed, err := dial(cmd.Context(), conn, dir)
			if err != nil {
				return err
			}
			defer func() { _ = closed() }()
			return f(cmd, b.DeadLetters(), args)
		}
	}
	cmd.AddCommand(list(with), show(with), redrive(with), remove(with), purge(with))
	return cmd
}

// dial connects to the logs of the folder or, without one, to those of the connection.
func dial(ctx context.Context, conn connect.Config, dir string) (bus.Bus, func() error, error) {
	const name = "monolith dlq"
	if dir != "" {
		return host.DialFolder(ctx, dir, conn, name)
	}
	b, err := conn.Dial(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return b, b.Close, nil
}

func list(with withLetters) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "ls", Short: "List what was refused", Args: flags.NoArgs,
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, _ []string) error {
			if asJSON {
				return lettersJSON(cmd, letters)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SEQ\tWHEN\tBY\tFROM\tREDRIVEN\tREASON")
			err := letters.Each(cmd.Context(), func(p bus.Parked) error {
				seq, by := strconv.FormatUint(p.Seq, 10), p.By
				if p.More != nil {
					seq = "-" // a summary stands for several
				}
				if p.Unreadable {
					by = "?"
				}
				_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s %d\t%v\t%s\n", seq, p.Time.UTC().Format(time.RFC3339), by, p.Stream, p.StreamSeq, p.Redriven, p.Reason)
				return err
			})
			return errors.Join(err, w.Flush())
		})}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list, with the bytes")
	return cmd
}

// lettersJSON prints the list one letter at a time: together they may be larger than the
// memory.
func lettersJSON(cmd *cobra.Command, letters bus.DeadLetters) error {
	w, sep := cmd.OutOrStdout(), "["
	err := letters.Each(cmd.Context(), func(p bus.Parked) error {
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, sep+string(data))
		sep = ","
		return err
	})
	if err != nil {
		return err
	}
	if sep == "[" {
		_, err = io.WriteString(w, "[]\n")
	} else {
		_, err = io.WriteString(w, "]\n")
	}
	return err
}

func show(with withLetters) *cobra.Command {
	return &cobra.Command{Use: "show SEQ", Short: "Show one of them whole", Args: oneSeq,
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
}

func redrive(with withLetters) *cobra.Command {
	var file string
	cmd := &cobra.Command{Use: "redrive SEQ", Short: "Publish it again on its subject, mended if --data names a file", Args: oneSeq,
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
	cmd.Flags().StringVar(&file, "data", "", "`file` with the mended body; empty: the bytes as they were")
	return cmd
}

func remove(with withLetters) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "rm SEQ", Short: "Remove it; what was refused is not parked again", Args: oneSeq,
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, args []string) error {
			seq := mustSeq(args)
			if err := letters.Remove(cmd.Context(), seq); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]int{"removed": 1})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Letter %d was removed.\n", seq)
			return err
		})}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func purge(with withLetters) *cobra.Command {
	var by string
	var olderThan time.Duration
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Remove all of them, or those of one owner or of some age, and summaries likewise",
		Long: "Removes letters and summaries: all of them, or those for which --by and --older-than both hold. It is\n" +
			"remembered: what was refused is not parked again.",
		Example: "  monolith dlq purge --by trainer --older-than 168h --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if olderThan < 0 {
				return fmt.Errorf("%w: --older-than %v: give a duration such as 168h", flags.ErrUsage, olderThan)
			}
			return flags.NoArgs(cmd, args)
		},
		RunE: with(func(cmd *cobra.Command, letters bus.DeadLetters, _ []string) (err error) {
			latest := time.Now().Add(-olderThan)
			match := func(p bus.Parked) bool { return (by == "" || p.By == by) && !p.Time.After(latest) }
			n := 0
			if yes {
				n, err = letters.Purge(cmd.Context(), match)
			} else {
				err = letters.Each(cmd.Context(), func(p bus.Parked) error {
					if match(p) {
						n++
					}
					return nil
				})
			}
			if err != nil {
				return err
			}
			return tellPurged(cmd.OutOrStdout(), n, yes, asJSON)
		})}
	cmd.Flags().StringVar(&by, "by", "", "only those that this `owner` refused, as monolith dlq ls names it")
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only those that were refused so long ago, such as 168h")
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it; without, say what would be removed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func tellPurged(w io.Writer, n int, done, asJSON bool) error {
	if asJSON {
		key := "would_remove"
		if done {
			key = "removed"
		}
		return json.NewEncoder(w).Encode(map[string]int{key: n})
	}
	what := fmt.Sprintf("%d letters", n)
	if n == 1 {
		what = "1 letter"
	}
	says := what + " would be removed. Say --yes to do it."
	switch {
	case n == 0:
		says = "Nothing to remove."
	case done && n == 1:
		says = what + " was removed."
	case done:
		says = what + " were removed."
	}
	_, err := fmt.Fprintln(w, says)
	return err
}

func oneSeq(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		if _, err := strconv.ParseUint(args[0], 10, 64); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %s takes one sequence, as monolith dlq ls prints them", flags.ErrUsage, cmd.CommandPath())
}

// mustSeq reads what oneSeq has already accepted.
func mustSeq(args []string) uint64 {
	n, _ := strconv.ParseUint(args[0], 10, 64)
	return n
}

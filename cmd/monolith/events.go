package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/history"
	"github.com/monolith-go/monolith/internal/process/flags"
)

func newEvents() *cobra.Command {
	var conn connect.Config
	var since, until, filter string
	var tail, asJSON bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print the facts of the control plane, oldest first",
		Long: "Prints every event of the namespace (--bzid), one a line. --since and --until take a\n" +
			"sequence, a time (2026-11-20T10:00:00Z) or a time ago (5m). --filter keeps what contains\n" +
			"the text in its subject or type. With --tail it waits for more.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := conn.Dial(cmd.Context(), "monolith events")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			from, err := history.Position(cmd.Context(), b.Log(), since, time.Now())
			if err != nil {
				return err
			}
			var to uint64 // 0: there is no end
			if until != "" || !tail {
				if to, err = history.EndOf(cmd.Context(), b.Log(), until); err != nil {
					return err
				}
				if from > to {
					return nil
				}
			}
			out := cmd.OutOrStdout()
			err = b.Log().Follow(cmd.Context(), max(from, 1), to, func(r events.Recorded) error {
				if p, err := r.Subject.Parse(); err == nil && p.BZID != conn.BZID {
					return nil
				}
				if filter != "" && !strings.Contains(string(r.Subject), filter) && (r.Err != nil || !strings.Contains(catalog.Type(r.Event), filter)) {
					return nil
				}
				return history.Print(out, r, asJSON)
			})
			if errors.Is(err, context.Canceled) && tail {
				return nil
			}
			return err
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().StringVar(&since, "since", "", "first `sequence, time or age` to print; empty: the beginning")
	cmd.Flags().StringVar(&until, "until", "", "last `sequence, time or age` to print; empty: the end")
	cmd.Flags().StringVar(&filter, "filter", "", "print only events whose subject or type contains this `text`")
	cmd.Flags().BoolVarP(&tail, "tail", "f", false, "wait for more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

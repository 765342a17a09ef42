package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host/connect"
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
			from, err := position(cmd.Context(), b.Log(), since, time.Now())
			if err != nil {
				return err
			}
			var to uint64 // 0: there is no end
			if until != "" || !tail {
				if to, err = endOf(cmd.Context(), b.Log(), until); err != nil {
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
				return printEvent(out, r, asJSON)
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

type eventLine struct {
	Seq         uint64          `json:"seq"`
	Time        time.Time       `json:"time"`
	Subject     string          `json:"subject"`
	ID          string          `json:"id,omitempty"`
	Type        string          `json:"type,omitempty"`
	Source      string          `json:"source,omitempty"`
	Correlation string          `json:"correlation,omitempty"`
	Causation   string          `json:"causation,omitempty"`
	Event       json.RawMessage `json:"event,omitempty"`
	Error       string          `json:"error,omitempty"`
	Data        []byte          `json:"data,omitempty"` // of what cannot be read
}

func printEvent(w io.Writer, r events.Recorded, asJSON bool) error {
	line := eventLine{Seq: r.Seq, Time: r.Time.UTC(), Subject: string(r.Subject), ID: r.Header.ID, Type: r.Header.Type,
		Source: r.Header.Source, Correlation: r.Header.Correlation, Causation: r.Header.Causation}
	if r.Err != nil {
		line.Error, line.Data = r.Err.Error(), r.Data
	} else {
		body, err := events.Marshal(r.Event)
		if err != nil {
			return err
		}
		line.Event, line.Type = body, catalog.Type(r.Event)
	}
	if asJSON {
		return json.NewEncoder(w).Encode(line)
	}
	text := string(line.Event)
	if r.Err != nil {
		text = fmt.Sprintf("cannot be read (%s): %q", r.Err, r.Data)
	}
	_, err := fmt.Fprintf(w, "%6d  %s  %-34s %s\n", line.Seq, line.Time.Format("15:04:05.000"), strings.TrimPrefix(line.Subject, events.Root+"."), text)
	return err
}

// position is the first sequence that "since" means: a sequence, a time, or an age
// before now.
func position(ctx context.Context, log bus.Log, s string, now time.Time) (uint64, error) {
	if s == "" {
		return 1, nil
	}
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil {
		return seq, nil
	}
	t, err := moment(s, now)
	if err != nil {
		return 0, err
	}
	before, err := log.SeqAt(ctx, t.Add(-1)) // what was stored at t belongs to it
	return before + 1, err
}

// endOf is the last sequence that "until" means, 0 when that lies before the first event.
// A sequence that is not there yet is an error: the answer would not be that of the past.
func endOf(ctx context.Context, log bus.Log, s string) (uint64, error) {
	last, err := log.Last(ctx)
	if err != nil || s == "" {
		return last, err
	}
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil {
		if seq > last {
			return 0, fmt.Errorf("sequence %d is not in the log, which ends at %d: name an earlier one, or leave it out for the end", seq, last)
		}
		return seq, nil
	}
	t, err := moment(s, time.Now())
	if err != nil {
		return 0, err
	}
	return log.SeqAt(ctx, t)
}

func moment(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %q is no sequence, no time such as 2026-11-20T10:00:00Z and no age such as 5m", flags.ErrUsage, s)
	}
	return t, nil
}

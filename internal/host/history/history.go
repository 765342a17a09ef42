// Package history is how a person reads the log: events as lines, and places in it by
// sequence, time or age.
package history

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Line is an event as it is printed.
type Line struct {
	Seq         uint64          `json:"seq"`
	Time        time.Time       `json:"time"`
	Subject     string          `json:"subject"`
	ID          string          `json:"id,omitempty"`
	Type        string          `json:"type,omitempty"`
	Source      string          `json:"source,omitempty"`
	Correlation string          `json:"correlation,omitempty"`
	Causation   string          `json:"causation,omitempty"`
	AskedBy     string          `json:"askedBy,omitempty"`
	AskedKey    string          `json:"askedKey,omitempty"` // "": whoever asked said by itself who it is
	AskedFrom   string          `json:"askedFrom,omitempty"`
	Event       json.RawMessage `json:"event,omitempty"`
	Error       string          `json:"error,omitempty"`
	Data        []byte          `json:"data,omitempty"` // of what cannot be read
}

// LineOf is an event's line, but for what it says.
func LineOf(r events.Recorded) Line {
	return Line{Seq: r.Seq, Time: r.Time.UTC(), Subject: string(r.Subject), ID: r.Header.ID, Type: r.Header.Type,
		Source: r.Header.Source, Correlation: r.Header.Correlation, Causation: r.Header.Causation,
		AskedBy: r.Header.Asked.By, AskedKey: r.Header.Asked.Key, AskedFrom: r.Header.Asked.From}
}

// Print writes the event as one line, of JSON or for people.
func Print(w io.Writer, r events.Recorded, asJSON bool) error {
	line := LineOf(r)
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
	if who := r.Header.Asked.String(); who != "" {
		text += "  # asked by " + who
	}
	_, err := fmt.Fprintf(w, "%6d  %s  %-34s %s\n", line.Seq, line.Time.Format("15:04:05.000"), strings.TrimPrefix(line.Subject, events.Root+"."), text)
	return err
}

// Position is the first sequence that "since" means: a sequence, a time, or an age
// before now.
func Position(ctx context.Context, log bus.Log, s string, now time.Time) (uint64, error) {
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

// EndOf is the last sequence that "until" means, 0 when that lies before the first event.
// A sequence that is not there yet is an error: the answer would not be that of the past.
func EndOf(ctx context.Context, log bus.Log, s string) (uint64, error) {
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

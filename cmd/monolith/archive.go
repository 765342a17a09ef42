package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host/connect"
)

func newArchive() *cobra.Command {
	var conn connect.Config
	var dir string
	var follow, verify, asJSON bool
	var o archive.WriterOptions
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Keep the log in sealed, checksummed segments of this machine",
		Long: "Writes what the log holds behind the archive's end into segments, and says what is archived.\n" +
			"Commands and roles that are given the same folder by --archive start from it, and read there\n" +
			"what `monolith trim` has removed from the log.",
		Example: "  monolith archive --dir archive\n  monolith archive --dir archive --follow\n  monolith archive --dir archive --verify --json",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return fmt.Errorf("%w: name the archive's folder with --dir", flags.ErrUsage)
			}
			a, err := archive.Open(dir)
			if err != nil {
				return err
			}
			if verify {
				if _, err := a.Verify(); err != nil {
					return err
				}
				return describeArchive(cmd.OutOrStdout(), a, asJSON)
			}
			if o.Log, err = conn.Logger(); err != nil {
				return err
			}
			if err := writeArchive(cmd.Context(), conn, a, follow, o); err != nil {
				return err
			}
			return describeArchive(cmd.OutOrStdout(), a, asJSON)
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` of the archive")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until stopped")
	cmd.Flags().BoolVar(&verify, "verify", false, "write nothing; read every byte and compare the checksums")
	cmd.Flags().BoolVar(&asJSON, "json", false, "describe the archive as JSON")
	cmd.Flags().Uint64Var(&o.Events, "segment-events", 1_000_000, "events that end a segment")
	cmd.Flags().DurationVar(&o.Age, "segment-age", time.Hour, "how long a segment's first event waits at most for it to end")
	return cmd
}

func writeArchive(ctx context.Context, conn connect.Config, a *archive.Archive, follow bool, o archive.WriterOptions) (err error) {
	conn.Archive, conn.Bare = "", true
	b, err := conn.Dial(ctx, "monolith archive")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var until uint64
	if !follow {
		if until, err = b.Log().Last(ctx); err != nil {
			return err
		}
		if until == 0 {
			return nil
		}
	}
	return a.Write(ctx, b.Log(), until, o)
}

// archiveReport describes an archive.
type archiveReport struct {
	First    uint64           `json:"first"`
	Last     uint64           `json:"last"`
	Segments []archive.Footer `json:"segments"`
}

func describeArchive(w io.Writer, a *archive.Archive, asJSON bool) error {
	first, last := a.Span()
	all := a.Segments()
	if asJSON {
		for i := range all {
			all[i].Blocks = nil
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(archiveReport{first, last, all})
	}
	if last == 0 {
		_, err := fmt.Fprintln(w, "The archive is empty.")
		return err
	}
	_, err := fmt.Fprintf(w, "The archive holds sequences %d to %d, %s to %s, in %d segments.\n", first, last,
		all[0].Began.Format(time.RFC3339), all[len(all)-1].Ended.Format(time.RFC3339), len(all))
	return err
}

// trimMargin is how young an event the log must hold at least, so that whoever decides on
// a view that is a little behind still meets its guards.
const trimMargin = 20 * time.Minute

func newTrim() *cobra.Command {
	var conn connect.Config
	var before uint64
	var keep time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Make the log forget what an archive holds",
		Long: "Removes events from the log's beginning, never one that the archive named by --archive does not\n" +
			"hold, whole and checked, and never one of the last 20 minutes. Sequences stay what they are.\n" +
			"The archive's folder is remembered beside the log: commands and roles that find it under that\n" +
			"path read on there; others need --archive for whatever begins before the cut.",
		Example: "  monolith archive --dir archive && monolith trim --archive archive --keep 168h --yes",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case conn.Archive == "":
				return fmt.Errorf("%w: name the archive with --archive: only what it holds may be removed", flags.ErrUsage)
			case (before == 0) == (keep == 0):
				return fmt.Errorf("%w: give either --before or --keep", flags.ErrUsage)
			case keep != 0 && keep < trimMargin:
				return fmt.Errorf("%w: --keep %v: the log keeps at least its last %v", flags.ErrUsage, keep, trimMargin)
			}
			return trim(cmd.Context(), conn, before, max(keep, trimMargin), yes, cmd.OutOrStdout())
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().Uint64Var(&before, "before", 0, "the `sequence` that becomes the log's first, at most")
	cmd.Flags().DurationVar(&keep, "keep", 0, "how much of the log's end stays, such as 168h")
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it; without, say what would be removed")
	return cmd
}

func trim(ctx context.Context, conn connect.Config, before uint64, keep time.Duration, yes bool, w io.Writer) (err error) {
	a, err := archive.Open(conn.Archive)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(conn.Archive)
	if err != nil {
		return err
	}
	conn.Archive, conn.Bare = "", true
	b, err := conn.Dial(ctx, "monolith trim")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	t, ok := b.Log().(bus.Trimmer)
	if !ok {
		return errors.New("this log cannot be trimmed")
	}
	first, last, err := t.Span(ctx)
	if err != nil {
		return err
	}
	young, err := b.Log().SeqAt(ctx, time.Now().Add(-keep))
	if err != nil {
		return err
	}
	cut := young + 1
	if before > 0 {
		cut = min(cut, before)
	}
	cut, err = a.Covered(ctx, b.Log(), min(cut, last)) // the newest event stays
	if err != nil {
		return err
	}
	if cut <= first {
		_, err := fmt.Fprintf(w, "Nothing to remove: the log begins at sequence %d, and %s allows nothing before %d to go.\n", first, dir, cut)
		return err
	}
	if !yes {
		_, err := fmt.Fprintf(w, "%d events would be removed, sequences %d to %d of a log that ends at %d. Say --yes to do it.\n", cut-first, first, cut-1, last)
		return err
	}
	if err := t.KeepIn(ctx, dir); err != nil {
		return err
	}
	if err := t.Trim(ctx, cut); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d events were removed; the log begins at sequence %d.\n", cut-first, cut)
	return err
}

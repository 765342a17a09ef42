// Package archiving keeps the log in an archive and makes the log forget what that holds.
package archiving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/internal/host/connect"
)

// Write writes what the log holds behind the end of a, and goes on until ctx ends with
// follow.
func Write(ctx context.Context, conn connect.Config, a *archive.Archive, follow bool, o archive.WriterOptions) (err error) {
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

// Report describes an archive.
type Report struct {
	First    uint64           `json:"first"`
	Last     uint64           `json:"last"`
	Segments []archive.Footer `json:"segments"`
}

// Describe tells w what a holds.
func Describe(w io.Writer, a *archive.Archive, asJSON bool) error {
	first, last := a.Span()
	all := a.Segments()
	if asJSON {
		for i := range all {
			all[i].Blocks = nil
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(Report{first, last, all})
	}
	if last == 0 {
		_, err := fmt.Fprintln(w, "The archive is empty.")
		return err
	}
	_, err := fmt.Fprintf(w, "The archive holds sequences %d to %d, %s to %s, in %d segments.\n", first, last,
		all[0].Began.Format(time.RFC3339), all[len(all)-1].Ended.Format(time.RFC3339), len(all))
	return err
}

// Margin is how young an event the log must hold at least, so that whoever decides on
// a view that is a little behind still meets what it expects.
const Margin = 20 * time.Minute

// Trim makes the log forget what its archive holds, all before the sequence before or older
// than keep, and tells w; without yes it tells what it would do.
func Trim(ctx context.Context, conn connect.Config, before uint64, keep time.Duration, yes bool, w io.Writer) (err error) {
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

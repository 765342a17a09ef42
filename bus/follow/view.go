// Package follow runs a fold on the log: it restores a snapshot, replays what came
// after, says when it has caught up, and then keeps the state current for readers.
package follow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// View is a fold with its name. Fold must be pure: the same records give the same S.
// S must survive encoding/json unchanged, since hashes, and mostly snapshots, are its JSON.
type View[S any] struct {
	Name    string // of snapshot files and metrics
	Version int    // raised with every change of S or of what Fold makes of a log
	New     func() S

	// Fold, like hooks, must not hold on to an event of context znode: from an archive, the
	// next ones come in the same memory.
	Fold func(S, events.Recorded) S

	// Failed is the state after a record whose Fold panicked: it is skipped and counted. s is
	// the state before, of which Fold may have changed a part. nil: the state stays as it is.
	Failed func(s S, r events.Recorded) S

	// In is Fold of one namespace, where a record of another one changes S, its sequence
	// for example. nil: such a record changes nothing.
	In func(bzid string, s S, r events.Recorded) S

	// Parts cuts a record into what hooks are to see one by one, all of one sequence:
	// folded one after the other they must give what Fold makes of the whole. nil: hooks
	// see whole records.
	Parts func(events.Recorded) iter.Seq[events.Recorded]

	// Contexts are those whose events change more of S than its sequence; none: any may.
	// An archive need not decode the others.
	Contexts []string

	// Encode and Decode are the snapshot's form where JSON is too slow; both or neither.
	// Encode takes the state as it is, at once, and returns what writes it: that runs
	// while the fold goes on, exactly once. Decode trusts nothing that it reads.
	Encode func(S) func(io.Writer) error
	Decode func(io.Reader) (S, error)

	// Freeze is for states too large to be marshalled under the follower's lock. It takes
	// the state as it is, at once, and returns what writes its [Canonical] JSON: that runs
	// while the fold goes on, exactly once.
	Freeze func(S) func(io.Writer) error

	bzid string
}

// Only returns the view of one namespace: records of another bzid are not folded.
// Its snapshots are kept apart from those of the view itself.
func (v View[S]) Only(bzid string) View[S] {
	inner := v.Fold
	v.bzid = bzid
	if v.In != nil {
		v.Fold = func(s S, r events.Recorded) S { return v.In(bzid, s, r) }
		return v
	}
	v.Fold = func(s S, r events.Recorded) S {
		if p, err := r.Subject.Parse(); err == nil && p.BZID != bzid {
			return s
		}
		return inner(s, r)
	}
	return v
}

// concerns says whether r may change more of the state than its sequence.
func (v View[S]) concerns(r events.Recorded) bool {
	if v.bzid == "" && len(v.Contexts) == 0 {
		return true
	}
	p, err := r.Subject.Parse()
	return err != nil || (v.bzid == "" || p.BZID == v.bzid) && (len(v.Contexts) == 0 || slices.Contains(v.Contexts, p.Context))
}

// key names the view's files: Name, or Name@<escaped bzid> under Only.
func (v View[S]) key() string {
	if v.bzid == "" {
		return v.Name
	}
	return v.Name + "@" + events.Escape(v.bzid)
}

// Canonical is the JSON that Hash is taken of: map keys sorted, no white space, facts
// as protojson in field order.
func Canonical[S any](s S) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// HashBytes is the SHA-256 of canonical JSON, in hex.
func HashBytes(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// End, given to Replay, is the last event stored now.
const End = math.MaxUint64

// Replay folds the log from its first event to the one at sequence until, without a
// snapshot; 0 is the state before the first event. A sequence beyond the end is an error.
func Replay[S any](ctx context.Context, log bus.Log, v View[S], until uint64) (S, error) {
	s := v.New()
	last, err := log.Last(ctx)
	if err != nil {
		return s, fmt.Errorf("replay %s: find the end of the log: %w", v.Name, err)
	}
	if until == End {
		until = last
	}
	if until > last {
		return s, fmt.Errorf("replay %s: %w: sequence %d is not written yet; the log ends at %d", v.Name, bus.ErrNotFound, until, last)
	}
	if until == 0 {
		return s, nil
	}
	err = v.follow(ctx, log, 1, until, func(r events.Recorded) error {
		if r.Seq <= until {
			s = v.fold(s, r, nil, nil)
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("replay %s: %w", v.Name, err)
	}
	return s, nil
}

// replayer is a log with an archive, which is quicker than its server.
type replayer interface {
	// Replay hands on what is archived from sequence `from` to `until` (0: its end), of
	// other contexts only that there was an event, and returns the sequence to go on from.
	Replay(ctx context.Context, from, until uint64, contexts []string, handle func(events.Recorded) error) (next uint64, err error)
}

// follow hands every record to handle, from the archive as far as there is one.
func (v View[S]) follow(ctx context.Context, log bus.Log, from, until uint64, handle func(events.Recorded) error) error {
	if a, ok := log.(replayer); ok {
		next, err := a.Replay(ctx, from, until, v.Contexts, handle)
		if err != nil || until > 0 && next > until {
			return err
		}
		from = next
	}
	return log.Follow(ctx, from, until, handle)
}

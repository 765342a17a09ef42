package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
)

var _ bus.Trimmer = logStream{}

// Span implements bus.Trimmer.
func (l logStream) Span(ctx context.Context) (first, last uint64, err error) {
	return l.span(ctx)
}

func (l logStream) span(ctx context.Context) (first, last uint64, err error) {
	first, last, err = l.b.stream(wire.LogStream).Span(ctx)
	for err == nil {
		known := l.b.first.Load()
		if first <= known || l.b.first.CompareAndSwap(known, first) {
			break
		}
	}
	return first, last, err
}

// trimBucket remembers, for each subject that a trimmed event stood on, the sequence of
// the last one: the server itself forgets that, and guards still name it.
const trimBucket = "MONOLITH_TRIMMED"

// Trim implements bus.Trimmer:
//
//	remember each subject's last event before the sequence | nobody asks yet
//	remember the last event before the sequence            | the same
//	purge                                                  | guards before it are looked up
//
// Streams of earlier builds deny purges for ever, which cannot be changed.
func (l logStream) Trim(ctx context.Context, before uint64) error {
	first, last, err := l.span(ctx)
	if err != nil {
		return err
	}
	if before > last+1 {
		return fmt.Errorf("trim the log before sequence %d: it ends at %d", before, last)
	}
	before = min(before, last) // the newest stays
	if before <= first {
		return nil
	}
	s, err := l.b.conn.JS.Stream(ctx, wire.LogStream)
	if err != nil {
		return fmt.Errorf("trim the log: %w", conn.Failure(err))
	}
	if s.CachedInfo().Config.DenyPurge {
		return errors.New("trim the log: its stream was created to deny purges, which cannot be changed: raise its size limit instead")
	}
	if err := l.remember(ctx, s, before); err != nil {
		return fmt.Errorf("trim the log: remember what stood last on each subject: %w", conn.Failure(err))
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSequence(before)); err != nil {
		return fmt.Errorf("trim the log before sequence %d: %w", before, conn.Failure(err))
	}
	_, _, err = l.span(ctx)
	return err
}

// remember stores the last sequence of every subject whose events are all before the
// sequence.
func (l logStream) remember(ctx context.Context, s jetstream.Stream, before uint64) error {
	kv, err := l.trimKV(ctx)
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		at, err := l.b.stream(wire.LogStream).LastOf(ctx, subject)
		if err != nil {
			return err
		}
		if at == 0 || at >= before {
			continue
		}
		if _, err := kv.PutString(ctx, trimKey(subject), strconv.FormatUint(at, 10)); err != nil {
			return err
		}
	}
	r, err := l.Get(ctx, before-1)
	if errors.Is(err, bus.ErrNotFound) { // lost: nothing can be proved by it
		return nil
	}
	if err != nil {
		return err
	}
	cut, err := json.Marshal(cutEvent{r.Seq, r.Time, r.Header.ID})
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, cutKey, cut)
	return err
}

// Keys of the bucket beside those of subjects.
const (
	cutKey     = "cut"     // a cutEvent
	archiveKey = "archive" // a folder
)

// cutEvent is the last event that was trimmed.
type cutEvent struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	ID   string    `json:"id"`
}

// trimKV is the bucket, made if it is not there.
func (l logStream) trimKV(ctx context.Context) (jetstream.KeyValue, error) {
	return l.b.bucket(ctx, jetstream.KeyValueConfig{
		Bucket: trimBucket, Description: "last sequence of each subject whose events were trimmed", History: 1, MaxBytes: 256 << 20,
	})
}

// KeepIn implements bus.Trimmer.
func (l logStream) KeepIn(ctx context.Context, archive string) error {
	kv, err := l.trimKV(ctx)
	if err == nil {
		_, err = kv.PutString(ctx, archiveKey, archive)
	}
	if err != nil {
		return fmt.Errorf("remember the log's archive: %w", conn.Failure(err))
	}
	return nil
}

// Cut implements bus.Trimmer.
func (l logStream) Cut(ctx context.Context) (cut bus.Cut, err error) {
	ctx, cancel := l.b.conn.Bound(ctx)
	defer cancel()
	value, err := l.trimmed(ctx, cutKey)
	if err == nil && value != nil {
		var e cutEvent
		err = json.Unmarshal(value, &e)
		cut.Seq, cut.Time, cut.ID = e.Seq, e.Time, e.ID
	}
	if err == nil {
		value, err = l.trimmed(ctx, archiveKey)
		cut.Archive = string(value)
	}
	if err != nil {
		return bus.Cut{}, fmt.Errorf("find where the log was trimmed: %w", err)
	}
	return cut, nil
}

// trimmed is a value of the bucket, nil when there is none.
func (l logStream) trimmed(ctx context.Context, key string) ([]byte, error) {
	m, err := l.b.stream(bucketStream+trimBucket).Ask(ctx, stream.Query{LastFor: "$KV." + trimBucket + "." + key})
	var api *conn.APIError
	if errors.Is(err, bus.ErrNotFound) || errors.As(err, &api) && api.ErrCode == conn.CodeNoStream {
		return nil, nil // nothing was trimmed, or not of that subject
	}
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// trimmedLast is the sequence of the subject's last event that was trimmed, 0: none was.
func (l logStream) trimmedLast(ctx context.Context, subject string) (uint64, error) {
	value, err := l.trimmed(ctx, trimKey(subject))
	if err != nil || value == nil {
		return 0, err
	}
	return strconv.ParseUint(string(value), 10, 64)
}

// whereTrimmed says what whoever needs trimmed events has to do.
func (l logStream) whereTrimmed(ctx context.Context) string {
	const hint = "the log was trimmed behind an archive: name its folder with --archive or MONOLITH_ARCHIVE"
	if cut, err := l.Cut(ctx); err == nil && cut.Archive != "" {
		return hint + ", trim was told " + cut.Archive
	}
	return hint
}

// trimKey is the subject as a key may be spelt.
func trimKey(subject string) string {
	h := sha256.Sum256([]byte(subject))
	return hex.EncodeToString(h[:16])
}

// commit appends msgs. A guard that names a trimmed event is sent as "none" where that
// event was its subject's last; had the subject a later one, the server refuses it.
func (l logStream) commit(ctx context.Context, msgs []outgoing) ([]uint64, error) {
	first := l.b.first.Load()
	ready, err := l.guarded(ctx, msgs, first)
	if err != nil {
		return nil, err
	}
	seqs, err := l.b.events.commit(ctx, ready)
	if !errors.Is(err, bus.ErrConflict) || !slices.ContainsFunc(msgs, func(m outgoing) bool { return m.expect != bus.Any && m.expect > 0 }) {
		return seqs, err
	}
	// It may be that the log was trimmed since.
	now, _, serr := l.span(ctx)
	if serr != nil || !slices.ContainsFunc(msgs, func(m outgoing) bool { return m.expect >= first && m.expect < now && m.expect > 0 }) {
		return seqs, err
	}
	if ready, serr = l.guarded(ctx, msgs, now); serr != nil {
		return nil, serr
	}
	return l.b.events.commit(ctx, ready)
}

// guarded are msgs with the guards that the server can check, given the oldest event it
// holds.
func (l logStream) guarded(ctx context.Context, msgs []outgoing, first uint64) ([]outgoing, error) {
	var out []outgoing
	for i, m := range msgs {
		if m.expect == bus.Any || m.expect >= first || first <= 1 {
			continue
		}
		last, err := l.trimmedLast(ctx, m.subject)
		if err != nil {
			return nil, fmt.Errorf("append to %s: find the guard of %s: %w", wire.LogStream, m.subject, err)
		}
		if last != m.expect {
			return nil, fmt.Errorf("append to %s: %w: %s was at sequence %d when it was trimmed, not %d", wire.LogStream, bus.ErrConflict, m.subject, last, m.expect)
		}
		if out == nil && last != 0 {
			out = slices.Clone(msgs)
		}
		if last != 0 {
			out[i].expect = 0
		}
	}
	if out == nil {
		return msgs, nil
	}
	return out, nil
}

package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/leases"
)

// bucketStream begins the name of the stream behind a KV bucket.
const bucketStream = "KV_"

// leaseBytes bounds the bucket of the leases.
const leaseBytes = 16 << 20

// streams are the configurations wanted, with the limits of a new stream.
func (b *Bus) streams() []jetstream.StreamConfig {
	base := jetstream.StreamConfig{
		Storage: jetstream.FileStorage, Replicas: b.cfg.Replicas, Retention: jetstream.LimitsPolicy,
		AllowDirect: true, AllowAtomicPublish: true, Duplicates: wire.Window,
		MaxConsumers: -1, MaxMsgs: -1, MaxMsgsPerSubject: -1,
	}
	log, sync, letters, notes := base, base, base, base

	log.Name, log.Subjects = wire.LogStream, wire.LogSubjects()
	log.Description = "control plane: every fact, until an archive holds it"
	log.Discard, log.DenyDelete = jetstream.DiscardNew, true
	log.MaxBytes, log.MaxMsgSize = cmp.Or(b.cfg.LogMaxBytes, 8<<30), wire.MaxEvent

	sync.Name, sync.Subjects = wire.SyncStream, []string{wire.DeltaRoot + ".>"}
	sync.Description = "parameter deltas on their way to serving"
	sync.Discard = jetstream.DiscardOld
	sync.MaxBytes, sync.MaxMsgSize = cmp.Or(b.cfg.SyncMaxBytes, 4<<30), wire.MaxMessage

	letters.Name, letters.Subjects = wire.LetterStream, []string{wire.LetterRoot + ".>"}
	letters.Description = "what was refused, with the reason"
	letters.Discard = jetstream.DiscardNew
	letters.MaxBytes, letters.MaxMsgSize = cmp.Or(b.cfg.LetterMaxBytes, 1<<30), wire.MaxMessage
	letters.MaxMsgsPerSubject = 1 // a tombstone takes the place of its letter
	letters.MaxAge = b.cfg.LetterMaxAge
	if letters.MaxAge <= 0 {
		letters.MaxAge = letterAge
	}
	letters.Duplicates = min(wire.Window, letters.MaxAge)

	notes.Name, notes.Subjects = wire.NoteStream, []string{wire.NoteRoot + ".>"}
	notes.Description = "how far reactions have come, and summaries of what MONOLITH_DLQ had no room for"
	notes.Discard = jetstream.DiscardNew
	notes.MaxBytes, notes.MaxMsgSize, notes.MaxMsgsPerSubject = 16<<20, 16<<10, 1

	return []jetstream.StreamConfig{log, sync, letters, notes}
}

// letterAge is how long a letter is kept unless the configuration or the stream says
// otherwise.
const letterAge = 180 * 24 * time.Hour

// reconcile creates what is missing and updates what differs. Any number of processes
// may do so at once.
func (b *Bus) reconcile(ctx context.Context) error {
	if b.moves = b.cfg.Replicas > 0; !b.moves {
		if err := b.settle(ctx, "stream "+wire.LogStream, b.countReplicas); err != nil {
			return err
		}
	}
	explicit := []int64{b.cfg.LogMaxBytes, b.cfg.SyncMaxBytes, b.cfg.LetterMaxBytes, 0}
	for i, want := range b.streams() {
		err := b.settle(ctx, "stream "+want.Name, func(ctx context.Context) error { return b.ensure(ctx, want, explicit[i] != 0) })
		if err != nil {
			return err
		}
	}
	return b.settle(ctx, "bucket "+leases.Bucket, b.ensureLeases)
}

// settle repeats f, which may be repeated, until it succeeds, fails for good, or ctx ends.
func (b *Bus) settle(ctx context.Context, what string, f func(context.Context) error) error {
	err := b.conn.Ask(ctx, func(attempt context.Context) error {
		err := conn.Failure(f(attempt))
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("nothing was answered; of a cluster more than half of the servers must be up and know each other (one cluster name, a server_name each, routes): %w", err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// countReplicas has new streams replicated as the log is.
func (b *Bus) countReplicas(ctx context.Context) error {
	s, err := b.conn.JS.Stream(ctx, wire.LogStream)
	switch {
	case err == nil:
		b.cfg.Replicas = s.CachedInfo().Config.Replicas
	case errors.Is(err, jetstream.ErrStreamNotFound):
		b.cfg.Replicas = 1
	default:
		return err
	}
	return nil
}

// bucket makes a key-value bucket or brings it up to date; one that is there keeps its
// replicas unless a number was asked for.
func (b *Bus) bucket(ctx context.Context, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	want.Storage, want.Replicas = jetstream.FileStorage, b.cfg.Replicas
	s, err := b.conn.JS.Stream(ctx, bucketStream+want.Bucket)
	switch {
	case err == nil && !b.moves:
		want.Replicas = s.CachedInfo().Config.Replicas
	case err == nil:
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	return b.conn.JS.CreateOrUpdateKeyValue(ctx, want)
}

// ensureLeases makes the bucket of the leases, with the stream of a key-value bucket. Its
// revisions are the epochs by which facts and shards fence, so a bucket that is made anew
// must not begin at 1 again: it begins at the milliseconds of its creation, or of the log's
// newest event where this machine's clock is behind. Fewer than one renewal in a
// millisecond keeps earlier revisions below that.
func (b *Bus) ensureLeases(ctx context.Context) error {
	s, err := b.conn.JS.Stream(ctx, bucketStream+leases.Bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want := leaseStream()
		var ferr error
		if want.FirstSeq, ferr = b.firstEpoch(ctx); ferr != nil {
			return ferr
		}
		want.Replicas = b.cfg.Replicas
		if _, err = b.conn.JS.CreateStream(ctx, want); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil // another process was quicker
		}
		return err
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	next, want := have, leaseStream()
	next.Description, next.MaxBytes, next.MaxMsgsPerSubject, next.Discard = want.Description, want.MaxBytes, want.MaxMsgsPerSubject, want.Discard
	next.AllowRollup, next.AllowDirect, next.DenyDelete = want.AllowRollup, want.AllowDirect, want.DenyDelete
	next.AllowMsgTTL, next.SubjectDeleteMarkerTTL = want.AllowMsgTTL, want.SubjectDeleteMarkerTTL
	if b.moves {
		next.Replicas = b.cfg.Replicas
	}
	if reflect.DeepEqual(have, next) {
		return nil
	}
	_, err = b.conn.JS.UpdateStream(ctx, next)
	return err
}

// leaseStream is that of a key-value bucket whose keys run out.
func leaseStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: bucketStream + leases.Bucket, Subjects: []string{"$KV." + leases.Bucket + ".>"}, MaxMsgsPerSubject: 1,
		Description: "leases: who may act",
		Discard:     jetstream.DiscardNew, MaxConsumers: -1, MaxMsgs: -1, MaxMsgSize: -1, MaxBytes: leaseBytes,
		Storage: jetstream.FileStorage, Duplicates: 2 * time.Minute,
		AllowRollup: true, AllowDirect: true, DenyDelete: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute,
	}
}

// firstEpoch is the first revision of a new bucket of leases.
func (b *Bus) firstEpoch(ctx context.Context) (uint64, error) {
	first := time.Now()
	log := logStream{b}
	last, err := log.Last(ctx)
	if err != nil {
		return 0, err
	}
	if last > 0 {
		m, err := b.stream(wire.LogStream).At(ctx, last)
		switch {
		case errors.Is(err, bus.ErrNotFound): // nothing is held
		case err != nil:
			return 0, err
		case m.Time.After(first):
			first = m.Time
		}
	}
	return uint64(first.UnixMilli()), nil
}

func (b *Bus) ensure(ctx context.Context, want jetstream.StreamConfig, explicit bool) error {
	s, err := b.conn.JS.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = b.conn.JS.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = b.conn.JS.Stream(ctx, want.Name) // another process was quicker
		}
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	next := b.amended(have, want, explicit)
	if reflect.DeepEqual(have, next) {
		return nil
	}
	_, err = b.conn.JS.UpdateStream(ctx, next)
	return err
}

// amended is what have becomes so that it does as want does: what operators may choose stays.
func (b *Bus) amended(have, want jetstream.StreamConfig, explicit bool) jetstream.StreamConfig {
	next := have
	for _, subject := range want.Subjects { // a newer build's contexts stay
		if !slices.Contains(next.Subjects, subject) {
			next.Subjects = append(slices.Clone(next.Subjects), subject)
		}
	}
	next.Discard, next.Duplicates, next.MaxMsgSize = want.Discard, want.Duplicates, want.MaxMsgSize
	next.AllowDirect, next.AllowAtomicPublish, next.MaxMsgsPerSubject = true, true, want.MaxMsgsPerSubject
	if next.MaxAge == 0 || want.MaxAge == 0 || b.cfg.LetterMaxAge > 0 { // an age that an operator gave the letters stays
		next.MaxAge = want.MaxAge
	} else {
		next.Duplicates = min(wire.Window, next.MaxAge)
	}
	next.DenyDelete = next.DenyDelete || want.DenyDelete
	if explicit {
		next.MaxBytes = want.MaxBytes
	}
	if b.moves {
		next.Replicas = want.Replicas
	}
	return next
}

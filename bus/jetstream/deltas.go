package jetstream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
)

// syncStream is the stream of deltas.
type syncStream struct{ b *Bus }

func (s syncStream) Publish(ctx context.Context, drafts ...bus.DeltaDraft) (uint64, error) {
	if len(drafts) == 0 {
		return s.Last(ctx)
	}
	ready, err := wire.CheckDeltas(drafts)
	if err != nil {
		return 0, err
	}
	msgs := make([]outgoing, len(ready))
	for i, d := range ready {
		msgs[i] = outgoing{subject: d.Subject, id: d.ID, header: wire.DeltaHeader(d), data: d.Data, expect: d.Expect}
	}
	seqs, err := s.b.deltas.commit(ctx, msgs)
	if err != nil {
		return 0, err
	}
	return seqs[len(seqs)-1], nil
}

func delta(m *stream.Message) bus.StoredDelta {
	return wire.Delta(bus.StoredDelta{Seq: m.Seq, Subject: m.Subject, Time: m.Time, Data: m.Data}, m.Header)
}

func (s syncStream) Follow(ctx context.Context, from, until uint64, subjects []string, handle func(bus.StoredDelta) error) error {
	for _, f := range subjects {
		if err := wire.CheckSubject(f, true); err != nil {
			return err
		}
	}
	r := stream.Reading{From: from, Until: until, Subjects: subjects, Discards: true}
	return s.b.stream(wire.SyncStream).Follow(ctx, r, func(m *stream.Message) error { return handle(delta(m)) })
}

func (s syncStream) First(ctx context.Context) (uint64, error) {
	first, _, err := s.b.stream(wire.SyncStream).Span(ctx)
	return first, err
}

func (s syncStream) Last(ctx context.Context) (uint64, error) {
	_, last, err := s.b.stream(wire.SyncStream).Span(ctx)
	return last, err
}

func (s syncStream) LastOf(ctx context.Context, subject string) (uint64, error) {
	return s.b.stream(wire.SyncStream).LastOf(ctx, subject)
}

func (s syncStream) Get(ctx context.Context, seq uint64) (bus.StoredDelta, error) {
	if seq == 0 {
		return bus.StoredDelta{}, fmt.Errorf("delta 0: %w; the first is 1", bus.ErrNotFound)
	}
	m, err := s.b.stream(wire.SyncStream).At(ctx, seq)
	if err != nil {
		return bus.StoredDelta{}, fmt.Errorf("delta %d: %w", seq, err)
	}
	return delta(m), nil
}

// Trim drops everything before a sequence, as the stream does by itself when full.
func (s syncStream) Trim(ctx context.Context, before uint64) error {
	ctx, cancel := s.b.conn.Bound(ctx)
	defer cancel()
	st, err := s.b.conn.JS.Stream(ctx, wire.SyncStream)
	if err == nil {
		err = st.Purge(ctx, jetstream.WithPurgeSequence(before))
	}
	if err != nil {
		return fmt.Errorf("trim deltas: %w", conn.Failure(err))
	}
	return nil
}

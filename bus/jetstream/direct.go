package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
)

// query asks a stream for one message without a consumer.
type query struct {
	Seq     uint64     `json:"seq,omitempty"`
	LastFor string     `json:"last_by_subj,omitempty"`
	NextFor string     `json:"next_by_subj,omitempty"` // at or behind Seq
	Start   *time.Time `json:"start_time,omitempty"`   // at or after
}

// stored is a message as the stream holds it.
type stored struct {
	seq     uint64
	subject string
	at      time.Time
	header  map[string][]string
	data    []byte
}

func (m *stored) id() string {
	if v := m.header[wire.MsgID]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// direct answers a query, bus.ErrNotFound when there is no such message. It waits for a
// server that is away until ctx ends.
func (b *Bus) direct(ctx context.Context, stream string, q query) (*stored, error) {
	return b.look(ctx, stream, "DIRECT.GET", q, func(reply *nats.Msg) (*stored, error) { return parseStored(stream, reply) })
}

// leader is direct, answered by the stream's leader alone: what it has refused because of,
// it finds.
func (b *Bus) leader(ctx context.Context, stream string, q query) (*stored, error) {
	return b.look(ctx, stream, "STREAM.MSG.GET", q, func(reply *nats.Msg) (*stored, error) { return parseGot(stream, reply.Data) })
}

func (b *Bus) look(ctx context.Context, stream, call string, q query, parse func(*nats.Msg) (*stored, error)) (m *stored, err error) {
	req, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err = b.retry(ctx, func(ctx context.Context) error {
		ctx, cancel := b.link.whileUp(ctx, requestTimeout)
		defer cancel()
		reply, err := b.nc.RequestWithContext(ctx, "$JS.API."+call+"."+stream, req)
		if err != nil {
			return fmt.Errorf("read %s: %w", stream, failure(err))
		}
		m, err = parse(reply)
		return err
	})
	return m, err
}

// parseGot reads a leader's answer.
func parseGot(stream string, reply []byte) (*stored, error) {
	var got struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Time    time.Time `json:"time"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply, &got); err != nil {
		return nil, fmt.Errorf("read %s: the answer does not decode: %w", stream, err)
	}
	switch {
	case got.Error != nil && got.Error.ErrCode == codeNoMessage:
		return nil, fmt.Errorf("read %s: %w", stream, bus.ErrNotFound)
	case got.Error != nil:
		return nil, fmt.Errorf("read %s: %w", stream, got.Error.sentinel())
	case got.Message == nil:
		return nil, fmt.Errorf("read %s: the answer holds no message", stream)
	}
	m := &stored{seq: got.Message.Seq, subject: got.Message.Subject, at: got.Message.Time.UTC(), data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(got.Message.Header)
		if err != nil {
			return nil, fmt.Errorf("read %s: the headers of sequence %d do not decode: %w", stream, m.seq, err)
		}
		m.header = h
	}
	return m, nil
}

func parseStored(stream string, reply *nats.Msg) (*stored, error) {
	switch status := reply.Header.Get("Status"); status {
	case "":
	case "404":
		return nil, fmt.Errorf("read %s: %w", stream, bus.ErrNotFound)
	default:
		return nil, fmt.Errorf("read %s: the server answers %s %s", stream, status, reply.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(reply.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read %s: the answer has no sequence: %w", stream, err)
	}
	at, err := time.Parse(time.RFC3339Nano, reply.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return nil, fmt.Errorf("read %s: the answer has no time: %w", stream, err)
	}
	m := &stored{seq: seq, subject: reply.Header.Get("Nats-Subject"), at: at, header: reply.Header, data: reply.Data}
	for _, k := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		delete(m.header, k)
	}
	return m, nil
}

// span is the first and the last sequence that a stream holds; first is last+1 when it
// holds nothing.
func (b *Bus) span(ctx context.Context, stream string) (first, last uint64, err error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err = b.retry(ctx, func(ctx context.Context) error {
		ctx, cancel := b.link.whileUp(ctx, requestTimeout)
		defer cancel()
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("state of %s: %w", stream, failure(err))
		}
		state := s.CachedInfo().State
		first, last = max(state.FirstSeq, 1), state.LastSeq
		if state.Msgs == 0 {
			first = last + 1
		}
		return nil
	})
	return first, last, err
}

// lastOf is the last sequence of a subject, 0 for none.
func (b *Bus) lastOf(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := b.direct(ctx, stream, query{LastFor: subject})
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.seq, nil
}

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

// at is the message of a sequence in a stream from which single ones are never removed,
// bus.ErrNotFound when there is none. Any replica that has it may answer; that there is none,
// only the leader can say, since the others lag behind.
func (b *Bus) at(ctx context.Context, stream string, seq uint64) (*stored, error) {
	q := query{Seq: seq}
	m, err := b.look(ctx, stream, "DIRECT.GET", q, func(reply *nats.Msg) (*stored, error) { return parseStored(stream, reply) })
	if isNotFound(err) {
		return b.leader(ctx, stream, q)
	}
	return m, err
}

// leader answers a query, bus.ErrNotFound when there is no such message. It is the stream's
// leader that is asked: it knows all that was acked or refused. A server that is away is
// waited for until ctx ends.
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

// extent is what a stream holds: from first to last, first being last+1 when that is nothing.
type extent struct {
	first, last uint64
	replicated  bool
	leader      string // server that leads it, "" outside of a cluster
}

// span is the first and the last sequence of the extent.
func (b *Bus) span(ctx context.Context, stream string) (first, last uint64, err error) {
	e, err := b.extent(ctx, stream)
	return e.first, e.last, err
}

// extent asks the stream's leader.
func (b *Bus) extent(ctx context.Context, stream string) (e extent, err error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	err = b.retry(ctx, func(ctx context.Context) error {
		ctx, cancel := b.link.whileUp(ctx, requestTimeout)
		defer cancel()
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("state of %s: %w", stream, failure(err))
		}
		info := s.CachedInfo()
		e = extent{first: max(info.State.FirstSeq, 1), last: info.State.LastSeq, replicated: info.Config.Replicas > 1}
		if info.Cluster != nil {
			e.leader = info.Cluster.Leader
		}
		if info.State.Msgs == 0 {
			e.first = e.last + 1
		}
		return nil
	})
	return e, err
}

// empty says whether a stream has nothing on the filters, none being everything, from one
// sequence to another: its leader does. A consumer that has nothing pending does not, since
// its replica may lag.
func (b *Bus) empty(ctx context.Context, stream string, filters []string, from, to uint64) (bool, error) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, filter := range filters {
		m, err := b.leader(ctx, stream, query{Seq: from, NextFor: filter})
		switch {
		case isNotFound(err):
		case err != nil:
			return false, err
		case m.seq <= to:
			return false, nil
		}
	}
	return true, nil
}

// lastOf is the last sequence of a subject, 0 for none.
func (b *Bus) lastOf(ctx context.Context, stream, subject string) (uint64, error) {
	m, err := b.leader(ctx, stream, query{LastFor: subject})
	if isNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.seq, nil
}

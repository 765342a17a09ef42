// Package stream reads a JetStream stream: single messages, all that there are, and what comes.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// Stream is one, by its name.
type Stream struct {
	conn *conn.Conn
	name string
}

// Of returns the stream of that name.
func Of(c *conn.Conn, name string) Stream { return Stream{c, name} }

// Query asks a stream for one message without a consumer.
type Query struct {
	Seq     uint64     `json:"seq,omitempty"`
	LastFor string     `json:"last_by_subj,omitempty"`
	NextFor string     `json:"next_by_subj,omitempty"` // at or behind Seq
	Start   *time.Time `json:"start_time,omitempty"`   // at or after
}

// Message is one as the stream holds it.
type Message struct {
	Seq     uint64
	Subject string
	Time    time.Time
	Header  map[string][]string
	Data    []byte
}

// ID is under which the message was published.
func (m *Message) ID() string {
	if v := m.Header[wire.MsgID]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// At is the message of a sequence, for a stream from which single ones are never removed,
// bus.ErrNotFound when there is none. Any replica that has it may answer; that there is none,
// only the leader can say, since the others lag behind.
func (s Stream) At(ctx context.Context, seq uint64) (*Message, error) {
	q := Query{Seq: seq}
	m, err := s.look(ctx, "DIRECT.GET", q, func(reply *nats.Msg) (*Message, error) { return parseStored(s.name, reply) })
	if errors.Is(err, bus.ErrNotFound) {
		return s.Ask(ctx, q)
	}
	return m, err
}

// Ask answers a query, bus.ErrNotFound when there is no such message. It is the stream's
// leader that is asked: it knows all that was acked or refused. A server that is away is
// waited for until ctx ends.
func (s Stream) Ask(ctx context.Context, q Query) (*Message, error) {
	return s.look(ctx, "STREAM.MSG.GET", q, func(reply *nats.Msg) (*Message, error) { return parseGot(s.name, reply.Data) })
}

func (s Stream) look(ctx context.Context, call string, q Query, parse func(*nats.Msg) (*Message, error)) (m *Message, err error) {
	req, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.conn.Bound(ctx)
	defer cancel()
	err = s.conn.Ask(ctx, func(ctx context.Context) error {
		reply, err := s.conn.NATS.RequestWithContext(ctx, "$JS.API."+call+"."+s.name, req)
		if err != nil {
			return fmt.Errorf("read %s: %w", s.name, conn.Failure(err))
		}
		m, err = parse(reply)
		return err
	})
	return m, err
}

// parseGot reads a leader's answer.
func parseGot(stream string, reply []byte) (*Message, error) {
	var got struct {
		Error   *conn.APIError `json:"error"`
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
	case got.Error != nil && got.Error.ErrCode == conn.CodeNoMessage:
		return nil, fmt.Errorf("read %s: %w", stream, bus.ErrNotFound)
	case got.Error != nil:
		return nil, fmt.Errorf("read %s: %w", stream, got.Error.Sentinel())
	case got.Message == nil:
		return nil, fmt.Errorf("read %s: the answer holds no message", stream)
	}
	m := &Message{Seq: got.Message.Seq, Subject: got.Message.Subject, Time: got.Message.Time.UTC(), Data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		h, err := nats.DecodeHeadersMsg(got.Message.Header)
		if err != nil {
			return nil, fmt.Errorf("read %s: the headers of sequence %d do not decode: %w", stream, m.Seq, err)
		}
		m.Header = h
	}
	return m, nil
}

func parseStored(stream string, reply *nats.Msg) (*Message, error) {
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
	m := &Message{Seq: seq, Subject: reply.Header.Get("Nats-Subject"), Time: at, Header: reply.Header, Data: reply.Data}
	for _, k := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		delete(m.Header, k)
	}
	return m, nil
}

// extent is what a stream holds: from first to last, first being last+1 when that is nothing.
type extent struct {
	first, last uint64
	replicated  bool
	leader      string // server that leads it, "" outside of a cluster
}

// Span is the first and the last sequence of the extent.
func (s Stream) Span(ctx context.Context) (first, last uint64, err error) {
	e, err := s.extent(ctx)
	return e.first, e.last, err
}

// extent asks the stream's leader.
func (s Stream) extent(ctx context.Context) (e extent, err error) {
	ctx, cancel := s.conn.Bound(ctx)
	defer cancel()
	err = s.conn.Ask(ctx, func(ctx context.Context) error {
		st, err := s.conn.JS.Stream(ctx, s.name)
		if err != nil {
			return fmt.Errorf("state of %s: %w", s.name, conn.Failure(err))
		}
		info := st.CachedInfo()
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

// empty says whether the stream has nothing on the filters, none being everything, from one
// sequence to another: its leader does. A consumer that has nothing pending does not, since
// its replica may lag.
func (s Stream) empty(ctx context.Context, filters []string, from, to uint64) (bool, error) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, filter := range filters {
		m, err := s.Ask(ctx, Query{Seq: from, NextFor: filter})
		switch {
		case errors.Is(err, bus.ErrNotFound):
		case err != nil:
			return false, err
		case m.Seq <= to:
			return false, nil
		}
	}
	return true, nil
}

// LastOf is the last sequence of a subject, 0 for none.
func (s Stream) LastOf(ctx context.Context, subject string) (uint64, error) {
	m, err := s.Ask(ctx, Query{LastFor: subject})
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Seq, nil
}

package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// latency is over requests, from read to reply queued. Each figure is right by itself;
// together they may be those of neighbouring moments.
type latency struct {
	n, sum, min, max, last atomic.Int64 // ns
}

func (l *latency) observe(d time.Duration) {
	ns := int64(d)
	l.n.Add(1)
	l.sum.Add(ns)
	l.last.Store(ns)
	for v := l.max.Load(); ns > v && !l.max.CompareAndSwap(v, ns); v = l.max.Load() {
	}
	for v := l.min.Load(); (ns < v || v < 0) && !l.min.CompareAndSwap(v, ns); v = l.min.Load() {
	}
}

func (l *latency) reset() {
	for _, v := range []*atomic.Int64{&l.n, &l.sum, &l.max, &l.last} {
		v.Store(0)
	}
	l.min.Store(-1)
}

func ms(v *atomic.Int64) int64 { return max(v.Load(), 0) / int64(time.Millisecond) }

func (l *latency) avg() float64 {
	n := l.n.Load()
	if n == 0 {
		return 0
	}
	return float64(l.sum.Load()) / float64(n) / float64(time.Millisecond)
}

// sizes are of replies and watch events, in bytes; -1: there was none.
type sizes struct{ last, min, max atomic.Int64 }

func (s *sizes) observe(n int64) {
	s.last.Store(n)
	for v := s.max.Load(); n > v && !s.max.CompareAndSwap(v, n); v = s.max.Load() {
	}
	for v := s.min.Load(); (n < v || v < 0) && !s.min.CompareAndSwap(v, n); v = s.min.Load() {
	}
}

func (s *sizes) reset() {
	for _, v := range []*atomic.Int64{&s.last, &s.min, &s.max} {
		v.Store(-1)
	}
}

// figures are what the four-letter words show of a connection.
type figures struct {
	received, sent atomic.Int64
	op             atomic.Int32 // of the last request
	xid            atomic.Int32
	zxid, replied  atomic.Int64 // Unix ns
	latency        latency
}

func (f *figures) reset() {
	f.received.Store(0)
	f.sent.Store(0)
	f.op.Store(int32(opNA))
	f.xid.Store(0)
	f.zxid.Store(0)
	f.replied.Store(time.Now().UnixNano())
	f.latency.reset()
}

// stats are the server's figures since it was made, or since srst.
type stats struct {
	received, sent, refused, slow, throttled atomic.Int64
	latency                                  latency
	replySize                                sizes
}

func (s *stats) reset() {
	s.received.Store(0)
	s.sent.Store(0)
	s.latency.reset()
	s.replySize.reset()
}

func (c *conn) received(op wire.Op) {
	c.s.stats.received.Add(1)
	c.shown.received.Add(1)
	c.shown.op.Store(int32(op))
}

// answered notes that a request was; zxid 0: unknown.
func (c *conn) answered(h wire.RequestHeader, start time.Time, zxid int64) {
	c.answeredAt(time.Now(), h, start, zxid)
}

func (c *conn) answeredAt(now time.Time, h wire.RequestHeader, start time.Time, zxid int64) {
	took := now.Sub(start)
	c.s.stats.latency.observe(took)
	c.shown.latency.observe(took)
	c.shown.xid.Store(h.Xid)
	c.shown.replied.Store(now.UnixNano())
	if zxid != 0 {
		c.shown.zxid.Store(zxid)
	}
}

// register shows the figures; a registry that has them from another server keeps those.
func (s *stats) register(reg prometheus.Registerer, srv *Server) {
	if reg == nil {
		return
	}
	gauge := func(name, help string, fn func() float64) {
		_ = reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, fn))
	}
	counter := func(name, help string, v *atomic.Int64) {
		_ = reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) }))
	}
	gauge("monolith_zk_connections", "Open client connections.", func() float64 { return float64(len(srv.connections())) })
	gauge("monolith_zk_sessions", "Sessions, connected or not.", func() float64 { return float64(srv.sessionCount()) })
	gauge("monolith_zk_watches", "Watches set.", func() float64 { return float64(srv.watches.Count()) })
	gauge("monolith_zk_outstanding", "Writes waiting for the log.", func() float64 { return float64(len(srv.slots)) })
	counter("monolith_zk_received_total", "Packets read from clients.", &s.received)
	counter("monolith_zk_sent_total", "Packets written to clients.", &s.sent)
	counter("monolith_zk_refused_total", "Connections refused because there were too many.", &s.refused)
	gauge("monolith_zk_waiting_bytes", "Bytes of requests that wait for the log.", func() float64 { return float64(srv.waiting.used.Load()) })
	counter("monolith_zk_throttled_total", "Times a connection was not read because too many bytes waited.", &s.throttled)
	counter("monolith_zk_slow_total", "Connections given up because their client did not read.", &s.slow)
}

// opNA and opSession stand for no request yet, and for the handshake.
const (
	opNA      wire.Op = -100
	opSession wire.Op = wire.OpCreateSession
)

// opName is ZooKeeper's name for an operation in its four-letter words.
func opName(op wire.Op) string {
	switch op {
	case opNA:
		return "NA"
	case opSession:
		return "SESS"
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL:
		return "CREA"
	case wire.OpDelete, wire.OpDeleteContainer:
		return "DELE"
	case wire.OpExists:
		return "EXIS"
	case wire.OpGetData:
		return "GETD"
	case wire.OpSetData:
		return "SETD"
	case wire.OpGetACL:
		return "GETA"
	case wire.OpSetACL:
		return "SETA"
	case wire.OpGetChildren, wire.OpGetChildren2:
		return "GETC"
	case wire.OpGetAllChildrenNumber:
		return "GETACN"
	case wire.OpGetEphemerals:
		return "GETE"
	case wire.OpSync:
		return "SYNC"
	case wire.OpPing:
		return "PING"
	case wire.OpReconfig:
		return "RECO"
	case wire.OpSASL:
		return "SASL"
	case wire.OpCheck:
		return "CHEC"
	case wire.OpMulti:
		return "MULT"
	case wire.OpMultiRead:
		return "MLTR"
	case wire.OpSetWatches, wire.OpSetWatches2:
		return "SETW"
	case wire.OpAddWatch:
		return "ADDW"
	case wire.OpCheckWatches:
		return "CHKW"
	case wire.OpRemoveWatches:
		return "REMW"
	case wire.OpWhoAmI:
		return "HOMI"
	case wire.OpAuth:
		return "AUTH"
	case wire.OpCloseSession:
		return "CLOS"
	}
	return "NA"
}

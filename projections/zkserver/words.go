package zkserver

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/projections/znode"
)

// version is what tools parse; the protocol is that of 3.8.
const version = "3.8.0-monolith, built on 01/01/1970 00:00 UTC"

// latency is over requests, from read to reply queued.
type latency struct {
	n              int64
	min, max, last time.Duration
	sum            time.Duration
}

func (l *latency) observe(d time.Duration) {
	if l.n == 0 || d < l.min {
		l.min = d
	}
	l.max = max(l.max, d)
	l.n++
	l.sum += d
	l.last = d
}

func (l latency) avg() float64 {
	if l.n == 0 {
		return 0
	}
	return float64(l.sum) / float64(l.n) / float64(time.Millisecond)
}

// stats are the server's figures since it was made.
type stats struct {
	received, sent, refused atomic.Int64

	mu  sync.Mutex
	lat latency
}

func (s *stats) observe(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lat.observe(d)
}

func (s *stats) latency() latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lat
}

// register shows the figures; a registry that has them from another server keeps those.
func (s *stats) register(reg prometheus.Registerer, srv *Server) {
	if reg == nil {
		return
	}
	gauge := func(name, help string, fn func() float64) {
		_ = reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, fn))
	}
	counter := func(name, help string, fn func() float64) {
		_ = reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, fn))
	}
	gauge("monolith_zk_connections", "Open client connections.", func() float64 { return float64(len(srv.connections())) })
	gauge("monolith_zk_sessions", "Sessions, connected or not.", func() float64 { return float64(srv.sessions.count()) })
	gauge("monolith_zk_watches", "Watches set.", func() float64 { return float64(srv.watches.count()) })
	counter("monolith_zk_received_total", "Packets read from clients.", func() float64 { return float64(s.received.Load()) })
	counter("monolith_zk_sent_total", "Packets written to clients.", func() float64 { return float64(s.sent.Load()) })
	counter("monolith_zk_refused_total", "Connections refused because there were too many.", func() float64 { return float64(s.refused.Load()) })
}

// word answers a four-letter word; ok is false for what is none.
func (s *Server) word(w string) (answer string, ok bool) {
	for i := range len(w) {
		if w[i] < 'a' || w[i] > 'z' {
			return "", false // the length of a frame
		}
	}
	switch w {
	case "ruok":
		return "imok", true
	case "srvr":
		return s.srvr(""), true
	case "stat":
		return s.srvr("Clients:\n" + s.clients(false) + "\n"), true
	case "cons":
		return s.clients(true) + "\n", true
	case "mntr":
		return s.mntr(), true
	case "envi":
		return envi(), true
	}
	return w + " is not executed because it is not in the whitelist.\n", true
}

// size is the tree's zxid and node count.
func (s *Server) size() (zxid uint64, nodes int) {
	s.tree.Read(func(t znode.State) { zxid, nodes = t.Seq, len(t.Nodes) })
	return zxid, nodes
}

func (s *Server) outstanding(all []*conn) (n int) {
	for _, c := range all {
		n += c.out.len()
	}
	return n
}

func (s *Server) srvr(clients string) string {
	zxid, nodes := s.size()
	l, all := s.stats.latency(), s.connections()
	return fmt.Sprintf("Zookeeper version: %s\n%sLatency min/avg/max: %d/%.4f/%d\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: 0x%x\nMode: standalone\nNode count: %d\n",
		version, clients, l.min.Milliseconds(), l.avg(), l.max.Milliseconds(),
		s.stats.received.Load(), s.stats.sent.Load(), len(all), s.outstanding(all), zxid, nodes)
}

// clients lists the connections that have a session.
func (s *Server) clients(full bool) string {
	all := s.connections()
	slices.SortFunc(all, func(a, b *conn) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.nc.RemoteAddr().String(), b.nc.RemoteAddr().String()))
	})
	var b strings.Builder
	for _, c := range all {
		c.mu.Lock()
		n, timeout, id := c.shown, c.timeout, c.id
		c.mu.Unlock()
		if id == 0 {
			continue
		}
		fmt.Fprintf(&b, " /%s[1](queued=%d,recved=%d,sent=%d", c.nc.RemoteAddr(), c.out.len(), n.received, n.sent)
		if full {
			fmt.Fprintf(&b, ",sid=0x%x,lop=%s,est=%d,to=%d,lcxid=0x%x,lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
				id, n.op, c.since.UnixMilli(), timeout.Milliseconds(), uint32(n.xid), n.zxid, n.replied.UnixMilli(),
				n.latency.last.Milliseconds(), n.latency.min.Milliseconds(), int64(n.latency.avg()), n.latency.max.Milliseconds())
		}
		b.WriteString(")\n")
	}
	return b.String()
}

func (s *Server) mntr() string {
	_, nodes := s.size()
	ephemerals, bytes := 0, 0
	s.tree.Read(func(t znode.State) {
		for path, n := range t.Nodes {
			bytes += len(path) + len(n.Data)
			if n.Owner != 0 {
				ephemerals++
			}
		}
	})
	l, all := s.stats.latency(), s.connections()
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value any
	}{
		{"version", version},
		{"server_state", "standalone"},
		{"avg_latency", fmt.Sprintf("%.4f", l.avg())},
		{"max_latency", l.max.Milliseconds()},
		{"min_latency", l.min.Milliseconds()},
		{"packets_received", s.stats.received.Load()},
		{"packets_sent", s.stats.sent.Load()},
		{"num_alive_connections", len(all)},
		{"outstanding_requests", s.outstanding(all)},
		{"znode_count", nodes},
		{"watch_count", s.watches.count()},
		{"ephemerals_count", ephemerals},
		{"approximate_data_size", bytes},
		{"global_sessions", s.sessions.count()},
	} {
		fmt.Fprintf(&b, "zk_%s\t%v\n", f.name, f.value)
	}
	return b.String()
}

func envi() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("Environment:\nzookeeper.version=%s\nhost.name=%s\ngo.version=%s\nos.name=%s\nos.arch=%s\n",
		version, host, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

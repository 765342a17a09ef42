package server

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/watch"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// version is what tools parse; the protocol is that of 3.8, and 3.9's watch modes.
const version = "3.8.0-monolith, built on 01/01/1970 00:00 UTC"

// Words are all four-letter words that there are, in order.
func Words() []string { return slices.Sorted(maps.Keys((*Server)(nil).answers())) }

// word answers a four-letter word; ok is false for what is none.
func (c *conn) word(w string) (answer string, ok bool) {
	s := c.s
	for i := range len(w) {
		if w[i] < 'a' || w[i] > 'z' {
			return "", false // the length of a frame
		}
	}
	answering, known := s.answers()[w]
	switch {
	case known && (s.words[w] || s.words["*"]):
		c.received(opNA)
		return answering(), true
	case known || slices.Contains(elsewhere, w):
		return w + " is not executed because it is not in the whitelist.\n", true
	}
	return "", false // a length that no frame has, as for ZooKeeper
}

// elsewhere are ZooKeeper's words that are never answered here: there is no trace mask,
// and the tree's digest is the log's.
var elsewhere = []string{"gtmk", "stmk", "hash"}

func (s *Server) answers() map[string]func() string {
	return map[string]func() string{
		"ruok": func() string { return "imok" },
		"srvr": func() string { return s.srvr("") },
		"stat": func() string { return s.srvr("Clients:\n" + s.clients(false) + "\n") },
		"cons": func() string { return s.clients(true) + "\n" },
		"mntr": func() string { return s.mntr() },
		"conf": func() string { return s.conf() },
		"envi": envi,
		"isro": func() string {
			if s.cfg.Proposer == nil || !s.cfg.Proposer.Writable() {
				return "ro"
			}
			return "rw"
		},
		"dirs": func() string { return "datadir_size: 0\nlogdir_size: 0\n" }, // the log's disk is not this server's
		"dump": func() string { return s.dump() },
		"wchs": func() string { return s.wchs() },
		"wchc": func() string { return s.watchList(bySession) },
		"wchp": func() string { return s.watchList(byPath) },
		"crst": func() string {
			for _, c := range s.connections() {
				c.shown.reset()
			}
			return "Connection stats reset.\n"
		},
		"srst": func() string { s.stats.reset(); return "Server stats reset.\n" },
	}
}

// size is the tree's zxid and node count.
func (s *Server) size() (zxid uint64, nodes int) {
	s.tree.Read(func(t view.State) { zxid, nodes = t.Seq, t.Count() })
	return zxid, nodes
}

func outstanding(all []*conn) (n int) {
	for _, c := range all {
		n += c.pipe.len()
	}
	return n
}

func (s *Server) srvr(clients string) string {
	zxid, nodes := s.size()
	l, all := &s.stats.latency, s.connections()
	return fmt.Sprintf("Zookeeper version: %s\n%sLatency min/avg/max: %d/%.4f/%d\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: 0x%x\nMode: standalone\nNode count: %d\n",
		version, clients, ms(&l.min), l.avg(), ms(&l.max),
		s.stats.received.Load(), s.stats.sent.Load(), len(all), outstanding(all), zxid, nodes)
}

// clients lists the connections; those without a session, that which asks among them,
// are not read any further.
func (s *Server) clients(full bool) string {
	all := s.connections()
	slices.SortFunc(all, func(a, b *conn) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.nc.RemoteAddr().String(), b.nc.RemoteAddr().String()))
	})
	var b strings.Builder
	for _, c := range all {
		f, open := &c.shown, c.Session() != 0
		interest := 0
		if open {
			interest = 1
		}
		fmt.Fprintf(&b, " /%s[%d](queued=%d,recved=%d,sent=%d", c.nc.RemoteAddr(), interest, c.pipe.len(), f.received.Load(), f.sent.Load())
		if full && open {
			fmt.Fprintf(&b, ",sid=%s,lop=%s,est=%d,to=%d,lcxid=0x%x,lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
				hex(c.Session()), opName(wire.Op(f.op.Load())), c.since.UnixMilli(), ms(&c.timeout), uint32(f.xid.Load()), f.zxid.Load(), ms(&f.replied),
				ms(&f.latency.last), ms(&f.latency.min), int64(f.latency.avg()), ms(&f.latency.max))
		}
		b.WriteString(")\n")
	}
	return b.String()
}

func (s *Server) mntr() string {
	var nodes, ephemerals, sessions int
	var bytes int64
	s.tree.Read(func(t view.State) {
		nodes, bytes = t.Count(), t.DataSize()
		for _, n := range t.EphemeralOwners() {
			ephemerals += n
		}
	})
	sessions = s.sessionCount()
	l, all, size := &s.stats.latency, s.connections(), &s.stats.replySize
	openFiles, maxFiles := files()
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value any
	}{
		{"version", version},
		{"server_state", "standalone"},
		{"avg_latency", fmt.Sprintf("%.4f", l.avg())},
		{"max_latency", ms(&l.max)},
		{"min_latency", ms(&l.min)},
		{"packets_received", s.stats.received.Load()},
		{"packets_sent", s.stats.sent.Load()},
		{"num_alive_connections", len(all)},
		{"outstanding_requests", outstanding(all)},
		{"znode_count", nodes},
		{"watch_count", s.watches.Count()},
		{"ephemerals_count", ephemerals},
		{"approximate_data_size", bytes},
		{"global_sessions", sessions},
		{"local_sessions", s.sessions.countLocal()},
		{"connection_rejected", s.stats.refused.Load()},
		{"uptime", time.Since(s.began).Milliseconds()},
		{"last_client_response_size", size.last.Load()},
		{"min_client_response_size", size.min.Load()},
		{"max_client_response_size", size.max.Load()},
		{"open_file_descriptor_count", openFiles},
		{"max_file_descriptor_count", maxFiles},
	} {
		fmt.Fprintf(&b, "zk_%s\t%v\n", f.name, f.value)
	}
	return b.String()
}

func (s *Server) conf() string {
	plain, secure := -1, -1
	if a := s.addr.Load(); a != nil {
		if s.cfg.TLS == nil {
			plain = a.Port
		} else {
			secure = a.Port
		}
	}
	return fmt.Sprintf("clientPort=%d\nsecureClientPort=%d\ntickTime=%d\nmaxClientCnxns=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=0\njute.maxbuffer=%d\n",
		plain, secure, s.cfg.MinSessionTimeout.Milliseconds()/2, s.cfg.MaxConnsPerIP, s.cfg.MinSessionTimeout.Milliseconds(), s.cfg.MaxSessionTimeout.Milliseconds(), s.cfg.MaxFrame)
}

func envi() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("Environment:\nzookeeper.version=%s\nhost.name=%s\njava.version=none, %s\ngo.version=%[3]s\nos.name=%s\nos.arch=%s\n",
		version, host, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// dump lists the sessions and what goes with them.
func (s *Server) dump() string {
	var b strings.Builder
	s.tree.Read(func(t view.State) {
		ids := t.Sessions()
		fmt.Fprintf(&b, "SessionTracker dump:\nGlobal Sessions(%d):\n", len(ids))
		for _, id := range ids {
			v, _ := t.Session(id)
			fmt.Fprintf(&b, "%s\t%dms\n", hex(id), v.TimeoutMS)
		}
		owners := t.EphemeralOwners()
		fmt.Fprintf(&b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(owners))
		for _, id := range slices.Sorted(maps.Keys(owners)) {
			fmt.Fprintf(&b, "%s:\n", hex(id))
			for _, p := range t.Ephemerals(id) {
				fmt.Fprintf(&b, "\t%s\n", p)
			}
		}
	})
	all := s.connections()
	fmt.Fprintf(&b, "Connections dump:\nConnections(%d):\n", len(all))
	for _, c := range all {
		fmt.Fprintf(&b, "\t/%s session %s\n", c.nc.RemoteAddr(), hex(c.Session()))
	}
	return b.String()
}

func (s *Server) wchs() string {
	conns, paths := map[*watch.Watcher]struct{}{}, map[string]struct{}{}
	n := 0
	s.watches.Each(func(k watch.Key, w *watch.Watcher) {
		conns[w] = struct{}{}
		paths[k.Path] = struct{}{}
		n++
	})
	return fmt.Sprintf("%d connections watching %d paths\nTotal watches:%d\n", len(conns), len(paths), n)
}

func bySession(path, session string) (key, value string) { return session, path }
func byPath(path, session string) (key, value string)    { return path, session }

// watchList groups watches as key says.
func (s *Server) watchList(key func(path, session string) (string, string)) string {
	groups := map[string][]string{}
	s.watches.Each(func(k watch.Key, w *watch.Watcher) {
		g, v := key(k.Path, hex(w.Client.Session()))
		groups[g] = append(groups[g], v)
	})
	var b strings.Builder
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		slices.Sort(groups[g])
		b.WriteString(g + "\n")
		for _, v := range slices.Compact(groups[g]) {
			b.WriteString("\t" + v + "\n")
		}
	}
	return b.String()
}

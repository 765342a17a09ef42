package ensemble

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

const (
	gather    = 2 * time.Millisecond // changes come in bursts
	retryWait = time.Second          // before a path that could not be brought into line is tried again
	maxDirty  = 100_000              // paths that are remembered one by one
)

// ErrRefused is an import that will never be: the mirror then repairs the ensemble.
var ErrRefused = errors.New("refused")

// Importer brings what foreign clients have written into the log.
type Importer interface {
	// Import returns once everything is decided and folded into the tree, and says of
	// each what came of it: nil, ErrRefused, or another error: to be tried again. It may
	// be told the same again after a crash. It keeps none of the messages.
	Import(ctx context.Context, seen []*znode.Imported) []error
}

// Auth is an identity to show the ensemble: ("digest", "user:password").
type Auth struct {
	Scheme string
	Secret []byte
}

// Config is the mirror's; zero fields take the default named.
type Config struct {
	Servers  []string      // host:port of the ensemble
	Chroot   string        // path over there below which everything lies; "": none
	BZID     string        // namespace: names the mark, and is the default root
	Roots    []string      // subtrees that are mirrored; default: /{bzid} and /monolith
	Auth     []Auth        // identities to show
	Session  time.Duration // how long ephemerals outlive a mirror that is gone; default 20 s
	Resync   time.Duration // between comparisons of everything, which find access lists set there; default 5 min
	Poll     time.Duration // the same where the ensemble has no addWatch; default 10 s
	Log      bus.Log       // the tree's, to recognize it; nil: every log is taken for the last one
	Importer Importer      // nil: foreign writes are undone, but for ephemerals of the living
	Dial     zk.Dialer     // default net.DialTimeout
	TLS      *tls.Config   // to the ensemble's secure port; nil: in the clear
	Metrics  prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if len(c.Roots) == 0 {
		c.Roots = []string{"/" + c.BZID, "/monolith"}
	}
	if c.Session == 0 {
		c.Session = 20 * time.Second
	}
	if c.Resync == 0 {
		c.Resync = 5 * time.Minute
	}
	if c.Poll == 0 {
		c.Poll = 10 * time.Second
	}
	if c.Dial == nil {
		c.Dial = net.DialTimeout
	}
	return c
}

// Mirror keeps an ensemble and the tree the same while it runs. One may run at a time,
// and a second one is harmless: the mark in the ensemble lets only the last one write.
type Mirror struct {
	cfg     Config
	tree    *follow.Follower[view.State]
	logger  *slog.Logger
	me      string
	node    string // path of the mark, without chroot
	claimed bool   // this mirror has written the mark; Run's own
	count   uint64 // attempts to write; makes each mark another one

	mu    sync.Mutex
	dirty map[string]struct{}
	all   bool   // everything is to be compared
	at    uint64 // sequence and id of the event last folded
	id    string
	wake  chan struct{}

	status Status           // what of it is noted when it happens
	stuck  map[string]stuck // by path

	synced  atomic.Uint64 // sequence up to which the ensemble is the same
	drift   prometheus.Counter
	writes  prometheus.Counter
	imports *prometheus.CounterVec
	held    prometheus.Gauge
}

// New sets a hook on the tree, which must not run yet, and starts nothing.
func New(cfg Config, tree *follow.Follower[view.State], logger *slog.Logger) (*Mirror, error) {
	cfg = cfg.withDefaults()
	m := &Mirror{
		cfg: cfg, tree: tree, logger: logger, me: rand.Text(), node: "/@monolith/" + events.Escape(cfg.BZID),
		dirty: map[string]struct{}{}, stuck: map[string]stuck{}, wake: make(chan struct{}, 1),
		drift: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_zk_mirror_drift_total", Help: "Nodes of the ensemble that had changed or gone by somebody else's hand and were put right."}),
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "monolith_zk_mirror_writes_total", Help: "Nodes written to the ensemble."}),
		imports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "monolith_zk_bridge_imports_total", Help: "Foreign writes in the ensemble, by outcome: done, refused or failed."}, []string{"outcome"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "monolith_zk_mirror_connected", Help: "1 while this process mirrors into the ensemble."}),
	}
	if cfg.Metrics != nil {
		for _, c := range append(m.gauges(), m.drift, m.writes, m.imports, m.held) {
			if err := cfg.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("zkmirror: register metrics: %w", err)
			}
		}
	}
	tree.OnEvent(m.folded)
	return m, nil
}

func (m *Mirror) lag() float64 {
	m.mu.Lock()
	idle := len(m.dirty) == 0 && !m.all
	m.mu.Unlock()
	if last := m.tree.Seq(); !idle && last > m.synced.Load() {
		return float64(last - m.synced.Load())
	}
	return 0
}

// inside says whether the path is mirrored.
func (m *Mirror) inside(path string) bool {
	for _, root := range m.cfg.Roots {
		if rest, ok := strings.CutPrefix(path, root); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// folded is the tree's hook.
func (m *Mirror) folded(t view.State, r events.Recorded) {
	m.mu.Lock()
	m.at, m.id = r.Seq, r.Header.ID
	m.mu.Unlock()
	for _, c := range t.Effects().Changes {
		if c.Kind != tree.ChildrenChanged {
			m.touch(c.Path)
		}
	}
	e, _ := r.Event.(*znode.Event)
	for _, op := range e.GetProposed().GetOps() { // a new access list fires no watch
		if q := op.GetSetAcl(); q != nil {
			m.touch(q.GetPath())
		}
	}
}

// touch has a path compared.
func (m *Mirror) touch(path string) {
	if !m.inside(path) {
		return
	}
	m.mu.Lock()
	if m.dirty[path] = struct{}{}; len(m.dirty) > maxDirty {
		m.all = true
		clear(m.dirty)
	}
	m.mu.Unlock()
	m.wakeUp()
}

func (m *Mirror) touchAll() {
	m.mu.Lock()
	m.all = true
	m.mu.Unlock()
	m.wakeUp()
}

func (m *Mirror) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take is what is to be compared, sorted.
func (m *Mirror) take() (paths []string, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all = m.all
	for path := range m.dirty {
		paths = append(paths, path)
	}
	m.all = false
	clear(m.dirty)
	slices.Sort(paths)
	return paths, all
}

// Run mirrors until ctx ends. The ephemerals it holds stay until its session expires,
// for a successor to take over; so that they never go, one must come in time.
func (m *Mirror) Run(ctx context.Context) {
	var s *session
	defer func() {
		if s != nil {
			s.leave()
		}
	}()
	for wait := 50 * time.Millisecond; ctx.Err() == nil; {
		if s == nil {
			opened, err := openSession(ctx, &m.cfg, m.logger)
			if err != nil {
				m.logger.Warn("zookeeper ensemble not reached; trying again", "servers", m.cfg.Servers, "err", err)
				wait = m.pause(ctx, wait)
				continue
			}
			s = opened
		}
		began := time.Now()
		err := m.leadTerm(ctx, s)
		m.ended()
		if ctx.Err() != nil {
			return
		}
		m.logger.Warn("zookeeper mirror interrupted; comparing everything again", "servers", m.cfg.Servers, "err", err)
		if time.Since(began) > time.Minute {
			wait = 50 * time.Millisecond
		}
		wait = m.pause(ctx, wait)
		if errors.Is(err, errFenced) { // two that want the same tree must not take turns at full speed
			_ = m.pause(ctx, m.cfg.Session)
		}
		select {
		case <-s.lost:
			s.leave()
			s = nil
		default:
			if errors.Is(err, errLost) {
				s.leave()
				s = nil
			}
		}
	}
}

// pause waits, and returns how long to wait the next time: several times while a session
// lasts, since one that is resumed or followed in time keeps its ephemerals.
func (m *Mirror) pause(ctx context.Context, d time.Duration) time.Duration {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return min(2*d, 5*time.Second, m.cfg.Session/6)
}

// dialReads opens a connection for reads that touches what it hears of.
func (m *Mirror) dialReads(ctx context.Context) (*readConn, error) {
	return dialReads(ctx, &m.cfg, func(path string) { m.touch(strings.TrimPrefix(path, m.cfg.Chroot)) })
}

// leadTerm is one connection for reads, from the claim until something breaks.
func (m *Mirror) leadTerm(ctx context.Context, s *session) error {
	w, err := m.dialReads(ctx)
	if err != nil {
		return err
	}
	r := &term{
		Mirror: m, s: s, w: w, later: map[string]uint64{}, retry: map[string]int64{},
		syncState: syncState{session: s.id, bridge: m.cfg.Importer != nil, handled: map[string]int64{}, there: map[string]uint64{}, refused: map[string]bool{}, kept: map[string]int32{}},
	}
	defer func() { r.w.close() }()
	// Reads find a server. A session that finds none may be refused for good, by servers
	// that have lost their data for example, and another one takes its ephemerals over.
	claim, cancel := context.WithTimeout(ctx, min(2*dialWithin, m.cfg.Session))
	err = r.claim(claim)
	cancel()
	if err != nil {
		if claim.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", errLost, err)
		}
		return err
	}
	resync := m.cfg.Resync
	if err := w.watch(ctx, m.cfg.Roots); errors.Is(err, errNoWatch) {
		w.close() // ZooKeeper hangs up on whoever asks for what it does not know
		if w, err = m.dialReads(ctx); err != nil {
			return err
		}
		r.w, resync = w, m.cfg.Poll
		m.logger.Warn("zookeeper ensemble without addWatch: it is compared from time to time", "every", resync)
	} else if err != nil {
		return err
	}
	m.logger.Info("zookeeper mirror begins", "servers", m.cfg.Servers, "session", fmt.Sprintf("0x%x", s.id), "seq", r.Seq)
	m.touchAll()
	m.began(s.id)
	again := time.NewTicker(retryWait)
	defer again.Stop()
	full := time.NewTicker(resync)
	defer full.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.lost:
			return errLost
		case <-w.done:
			return fmt.Errorf("the connection for reads: %w", w.err)
		case <-full.C:
			m.touchAll()
		case <-again.C:
			for path := range r.later {
				m.touch(path)
			}
			clear(r.later)
			if err := r.settleCursor(ctx); err != nil {
				return err
			}
		case <-m.wake:
			m.pause(ctx, gather)
			if err := r.round(ctx); err != nil {
				return err
			}
		}
	}
}

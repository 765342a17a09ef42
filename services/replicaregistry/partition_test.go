package replicaregistry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/testenv/faultnet"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

// Histories of two registries, their log and their clients, between whom the network
// holds, loses, delays and cuts. Whatever it does: what clients wrote and read behind a
// sync is linearizable, zxids do not fall, one registry at a time writes, and sessions
// end after their time-out and not before.

// parted is a cluster in which every connection goes through a relay.
type parted struct {
	*cluster
	uplinks []*faultnet.Relay // of each registry, to the log
	doors   []*faultnet.Relay // of each registry, from its clients
}

func newParted(t *testing.T) *parted {
	t.Helper()
	r := emptyCluster(t)
	r.lease, r.patience, r.synced = 2*time.Second, 1500*time.Millisecond, true
	p := &parted{cluster: r}
	relay := func(target string) *faultnet.Relay {
		f, err := faultnet.New(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	at, err := url.Parse(r.nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	r.uplink = func(i int) string { return "nats://" + p.uplinks[i].Addr() }
	for i := range 2 {
		p.uplinks = append(p.uplinks, relay(at.Host))
		p.doors = append(p.doors, relay(r.port()))
		r.addrs = append(r.addrs, p.doors[i].Addr())
		r.start(i)
	}
	return p
}

func (p *parted) heal() {
	for _, f := range append(p.uplinks, p.doors...) {
		f.Heal()
	}
}

// writer waits for a registry that writes, other than those.
func (p *parted) writer(others ...int) int {
	for until := time.Now().Add(wait.Patience); time.Now().Before(until); <-time.After(5 * time.Millisecond) {
		p.mu.Lock()
		for i, s := range p.runs {
			if s.writes.Writable() && !slices.Contains(others, i) {
				p.mu.Unlock()
				return i
			}
		}
		p.mu.Unlock()
	}
	p.t.Errorf("no registry writes, but perhaps %v", others)
	return 0
}

// takeOver has faults between the log and the registry that writes until another one does.
func (p *parted) takeOver(to, from faultnet.Fault) {
	former := p.writer()
	p.uplinks[former].Set(to, from)
	p.writer(former)
}

// holder is a client that keeps an ephemeral node, until it falls silent.
type holder struct {
	*session
	path     string
	timeout  time.Duration
	contacts []contact
	silent   bool // it fell silent, rather than lose its session
}

// contact is a request that was answered.
type contact struct{ sent, heard time.Time }

const holds = 2 * time.Second // a holder's time-out

// hold keeps the node until it is over, and then leaves without a word.
func (h *holder) hold(over func() bool) {
	defer h.cut()
	asked, made := false, false
	own := int64(0) // session
	defer func() { h.q.SessionID = own }()
	for !over() {
		sent := time.Now()
		if h.c == nil {
			if !h.connect(sent.Add(100 * time.Millisecond)) {
				continue
			}
			if own != 0 && h.q.SessionID != own {
				return // expired: the log says whether in time
			}
			own = h.q.SessionID
			h.timeout = time.Duration(h.c.Session.TimeoutMS) * time.Millisecond
			h.contacts = append(h.contacts, contact{sent, time.Now()})
		}
		sent = time.Now()
		if !made {
			q := wire.CreateRequest{Path: h.path, ACL: anybody, Flags: 1}
			head, _, ok := h.ask(wire.OpCreate, func(w *wire.Writer) { q.Encode(w, false) })
			again := head.Err == wire.NodeExists && asked // by this session, which was not answered
			asked, made = true, ok
			if ok && head.Err != wire.OK && !again {
				h.r.t.Errorf("%s was not created: %d", h.path, head.Err)
			}
		} else if head, _, ok := h.ask(wire.OpExists, (&wire.PathWatch{Path: h.path}).Encode); ok {
			if head.Err != wire.OK {
				h.r.t.Errorf("%s is gone while its session %#x lives: %d", h.path, h.q.SessionID, head.Err)
			}
			h.contacts = append(h.contacts, contact{sent, time.Now()})
		}
		<-time.After(h.timeout / 8)
	}
	h.silent = true
}

// round is one history of that length, or of what faults takes, which says what happens to
// the network.
func (p *parted) round(name string, seed uint64, length time.Duration, faults func(rng *rand.Rand, until time.Time)) (terms int) {
	p.t.Helper()
	began := time.Now()
	until := began.Add(length)
	var keys []string
	for i := range 8 {
		keys = append(keys, fmt.Sprintf("/%s-k%d", name, i))
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	var ends [6]time.Duration // of those that leave before the others
	for i := range ends {
		ends[i] = length/4 + time.Duration(rng.Int64N(int64(length/2)))
	}
	var holders []*holder
	var all, faulty sync.WaitGroup
	done := make(chan struct{})
	faulty.Go(func() { defer p.heal(); faults(rng, until.Add(-length/4)) })
	all.Go(func() {
		defer close(done)
		faulty.Wait()
		<-time.After(max(time.Until(until), length/4))
		p.enough(time.Now().Add(wait.Patience))
	})
	for i := range ends {
		h := &holder{path: fmt.Sprintf("/%s-held%d", name, i), timeout: holds,
			session: &session{r: p.cluster, at: i, q: wire.ConnectRequest{TimeoutMS: int32(holds.Milliseconds()), Password: make([]byte, 16)}}}
		holders = append(holders, h)
		over := func() bool {
			select {
			case <-done:
				return true
			default:
				return false
			}
		}
		if end := began.Add(ends[i]); i%2 == 0 {
			over = func() bool { return time.Now().After(end) }
		}
		all.Go(func() { h.hold(over) })
	}
	ops := p.playUntil(10, keys, seed, began, done)
	all.Wait()
	p.settle(ops, began)
	played := time.Since(began)
	known := len(ops)
	for _, o := range ops {
		if o.Output.(reply).unknown {
			known--
		}
	}
	if known < enough {
		p.t.Errorf("only %d of %d outcomes are known", known, len(ops))
	}
	ops = append(ops, p.last(keys, len(ops))...)
	read := time.Since(began)
	terms = p.audit(holders)
	p.t.Logf("%d operations, %d with an unknown outcome, %d terms so far; played %v, read until %v, sessions over at %v", len(ops), len(ops)-known-len(keys), terms, played, read, time.Since(began))
	linear(p.t, ops, seed)
	return terms
}

// audit reads the log when everybody has left: nobody wrote but under a fence of their
// own, and the holders' sessions ended when their time was over. It returns how many
// terms there were.
func (p *parted) audit(holders []*holder) (terms int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*controltest.Patience)
	defer cancel()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: p.nats.URL(), BZID: controltest.BZID})
	if err != nil {
		p.t.Error(err)
		return 0
	}
	defer b.Close()
	left := map[int64]*holder{}
	for _, h := range holders {
		if h.q.SessionID != 0 {
			left[h.q.SessionID] = h
		}
	}
	tree := events.Join(controltest.BZID, "znode", znode.Aggregate)
	writer, next := "", uint64(1)
	for {
		last, err := b.Log().Last(ctx)
		if err == nil && last >= next {
			err = b.Log().Follow(ctx, next, last, func(r events.Recorded) error {
				e, ok := r.Event.(*znode.Event)
				if r.Subject != tree || !ok {
					return nil
				}
				if r.Part == 0 {
					by := r.Header.ID[:strings.LastIndex(r.Header.ID, "-")]
					fence := e.GetProposed().GetMulti() && len(e.GetProposed().GetOps()) == 0
					if by != writer && !fence {
						p.t.Errorf("event %d of %s stands behind those of %s, without a fence between them", r.Seq, by, writer)
					}
					if fence {
						terms++
					}
					writer = by
				}
				if c := e.GetSessionClosed(); c.GetReason() == znode.Expired && left[c.GetSession()] != nil {
					left[c.GetSession()].ended(r.Time)
					delete(left, c.GetSession())
				}
				return nil
			})
			next = last + 1
		}
		if err != nil {
			p.t.Errorf("%d sessions of which nobody has heard for long have not ended: %v", len(left), err)
			return terms
		}
		if len(left) == 0 {
			return terms
		}
		<-time.After(50 * time.Millisecond)
	}
}

// ended says whether a session ended in time.
func (h *holder) ended(at time.Time) {
	var last contact
	for _, c := range h.contacts {
		if c.heard.Before(at) {
			last = c
		}
	}
	const clocks = 50 * time.Millisecond // the log's time is rounded, and taken a little before
	if lived := at.Sub(last.sent); lived < h.timeout-clocks {
		h.r.t.Errorf("session %#x ended %v after its last request, its time-out is %v", h.q.SessionID, lived, h.timeout)
	}
}

// during applies a fault for a time, or until the end.
func during(d time.Duration, until time.Time, fault func()) {
	fault()
	<-time.After(min(d, time.Until(until)))
}

var hold, drop = faultnet.Fault{Mode: faultnet.Hold}, faultnet.Fault{Mode: faultnet.Drop}

// TestPartition is one fault each; see TestSoakPartition.
func TestPartition(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		terms  int // at least
		faults func(p *parted, rng *rand.Rand, until time.Time)
	}{
		{"what the writer sends arrives late", 2, func(p *parted, _ *rand.Rand, _ time.Time) { p.takeOver(hold, hold) }},
		{"what the writer sends is stored and not acknowledged", 2, func(p *parted, _ *rand.Rand, _ time.Time) { p.takeOver(faultnet.Fault{}, hold) }},
		{"what the writer sends is lost", 2, func(p *parted, _ *rand.Rand, _ time.Time) { p.takeOver(drop, drop) }},
		{"clients and writer do not hear of one another", 1, func(p *parted, rng *rand.Rand, until time.Time) {
			during(time.Second, until, func() { p.doors[p.writer()].Set(hold, hold) })
			during(time.Second, until, func() { p.heal() })
			during(holds+time.Second, until, func() { p.doors[p.writer()].Set(drop, drop) })
			during(time.Second, until, func() { p.heal() })
			p.flap(rng, until)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			p := newParted(t)
			p.serves(time.Now().Add(3 * controltest.Patience))
			terms := p.round("p", seed, 9*time.Second, func(rng *rand.Rand, until time.Time) {
				<-time.After(time.Second)
				tc.faults(p, rng, until)
			})
			if terms < tc.terms {
				t.Errorf("%d terms, want %d: nobody took over", terms, tc.terms)
			}
		})
	}
}

// flap has one fault after another, of any kind, anywhere.
func (p *parted) flap(rng *rand.Rand, until time.Time) {
	any := func() faultnet.Fault {
		return []faultnet.Fault{{}, hold, drop, {Delay: time.Duration(rng.IntN(200)) * time.Millisecond}}[rng.IntN(4)]
	}
	for time.Now().Before(until) {
		all := append(p.uplinks, p.doors...)
		during(time.Duration(50+rng.IntN(4000))*time.Millisecond, until, func() {
			for range 1 + rng.IntN(2) {
				if f := all[rng.IntN(len(all))]; rng.IntN(5) == 0 {
					f.Cut()
				} else {
					f.Set(any(), any())
				}
			}
		})
		during(time.Duration(rng.IntN(3000))*time.Millisecond, until, p.heal)
	}
}

// TestSoakPartition has MONOLITH_SOAK rounds of faults drawn from a seed.
func TestSoakPartition(t *testing.T) {
	if os.Getenv("MONOLITH_SOAK") == "" {
		t.Skip("a soak: set MONOLITH_SOAK to the number of rounds, of 15 s each")
	}
	p := newParted(t)
	for n := range int(length(t, 1)) {
		seed := uint64(time.Now().UnixNano())
		p.serves(time.Now().Add(3 * controltest.Patience))
		t.Logf("round %d: seed %d", n, seed)
		p.round(fmt.Sprintf("r%d", n), seed, 15*time.Second, p.flap)
		if t.Failed() {
			return
		}
	}
}

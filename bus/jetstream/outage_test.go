package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/testenv/natstest"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func portOf(t *testing.T, s *natsserver.Server) int {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	port := portOf(t, s)
	outage(t, s.URL(), func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}, func() { startServer(t, dir, port) })
}

// outage takes the server away under writers and a follower: every append that was
// acked is followed once, in order, and what was refused may be sent again.
func outage(t *testing.T, url string, stop, start func()) {
	t.Helper()
	b := connect(t, jetstream.Config{URL: url})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()

	const writers, each = 8, 60
	restart, gone := make(chan struct{}), make(chan struct{})
	seen := map[string]uint64{}
	followed := make(chan error, 1)
	go func() {
		var last uint64
		followed <- b.Log().Follow(ctx, 1, writers*each, func(r events.Recorded) error {
			if r.Seq != last+1 {
				return fmt.Errorf("%d follows %d", r.Seq, last)
			}
			last = r.Seq
			seen[r.Header.ID] = r.Seq
			if r.Seq == writers*each/3 {
				close(restart)
			}
			return nil
		})
	}()
	o := &outageWriters{b: b, ctx: ctx, each: each, gone: gone, acked: map[string]uint64{}}
	for w := range writers {
		o.wg.Go(func() { o.write(t, w) })
	}
	select {
	case <-restart:
	case <-ctx.Done():
		close(gone)
		t.Fatal("the follower does not get on")
	}
	stop()
	close(gone)
	// Nobody is there: an append says so at its deadline.
	short, end := context.WithTimeout(ctx, 400*time.Millisecond)
	_, err := b.Log().Append(short, draft("late", "late", bus.Any))
	end()
	if !errors.Is(err, bus.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Append without a server = %v", err)
	}
	start()
	o.wg.Wait()
	if err := <-followed; err != nil {
		t.Fatalf("Follow: %v", err)
	}
	if o.outages == 0 {
		t.Error("no writer noticed the outage")
	}
	for id, seq := range o.acked {
		if at, ok := seen[id]; ok && at != seq {
			t.Errorf("%s was acked at %d and followed at %d", id, seq, at)
		}
	}
	if len(o.acked) != writers*each {
		t.Errorf("%d of %d events were acked", len(o.acked), writers*each)
	}
	checkLog(t, b, map[uint64]string{})
}

// outageWriters append each their events, one behind the other.
type outageWriters struct {
	b    bus.Bus
	ctx  context.Context
	each int
	gone <-chan struct{} // closed once the server is away; half of the events wait for it
	wg   sync.WaitGroup

	mu      sync.Mutex
	acked   map[string]uint64 // sequences by event id
	outages int               // refused attempts
}

func (o *outageWriters) write(t *testing.T, w int) {
	var last uint64
	for i := range o.each {
		if i == o.each/2 {
			<-o.gone // so that each writes while nobody is there
		}
		d := draft(fmt.Sprint("w", w), fmt.Sprintf("%d-%d", w, i), last)
		for long := 300 * time.Millisecond; ; long *= 2 { // beside a busy machine no ack may come in the first one's time
			short, end := context.WithTimeout(o.ctx, long)
			seqs, err := o.b.Log().Append(short, d)
			end()
			if err == nil {
				o.mu.Lock()
				o.acked[d.Header.ID], last = seqs[0], seqs[0]
				o.mu.Unlock()
				break
			}
			if !bus.Retryable(err) {
				t.Errorf("Append: %v", err)
				return
			}
			o.mu.Lock()
			o.outages++
			o.mu.Unlock()
		}
	}
}

func TestLeaseIsLostWithTheServer(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	port := portOf(t, s)
	b := connect(t, jetstream.Config{URL: s.URL()})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	one, release, err := b.Leases().Acquire(ctx, "chief", "one", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	long, releaseLong, err := b.Leases().Acquire(ctx, "long", "one", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer releaseLong()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Closed(t, "the end of a lease of 1 s", one.Lost)
	select {
	case <-long.Lost:
		t.Error("a lease of an hour is lost with the server")
	default:
	}
	startServer(t, dir, port)
	two, release, err := b.Leases().Acquire(ctx, "chief", "two", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if two.Epoch <= one.Epoch {
		t.Errorf("epoch %d follows %d", two.Epoch, one.Epoch)
	}
}

// Who waits for a lease waits through an outage, which is no reason to give up.
func TestLeaseIsWaitedForInAnOutage(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	port := portOf(t, s)
	b := connect(t, jetstream.Config{URL: s.URL(), Timeout: 50 * time.Millisecond})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, release, err := b.Leases().Acquire(t.Context(), "chief", "one", time.Minute)
		if err == nil {
			release()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("without a server: %v", err)
	case <-time.After(time.Second): // some attempts, on a machine that has nothing else to do
	}
	startServer(t, dir, port)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(wait.Patience):
		t.Error("the lease is not taken once the server is back")
	}
}

// A lease that is released while a renewal is on its way is free at once.
func TestLeaseIsReleasedDuringARenewal(t *testing.T) {
	relay := natstest.NewRelay(t, startServer(t, t.TempDir(), 0).URL())
	b := connect(t, jetstream.Config{URL: relay.URL()})
	_, release, err := b.Leases().TryAcquire(t.Context(), "chief", "one", 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	renewed := make(chan struct{})
	var once sync.Once
	relay.Alter(func(message []byte) []byte {
		if bytes.Contains(message, []byte(`"stream":"KV_MONOLITH_LEASES"`)) {
			first := false
			once.Do(func() { first = true; close(renewed) })
			if first {
				return nil
			}
		}
		return message
	})
	defer relay.Alter(nil)
	select {
	case <-renewed:
	case <-time.After(wait.Patience):
		t.Fatal("the lease is not renewed")
	}
	release()
	if _, again, err := b.Leases().TryAcquire(t.Context(), "chief", "two", time.Second); err != nil {
		t.Errorf("TryAcquire of a released lease: %v", err)
	} else {
		again()
	}
}

// TestLeaseExpires leaves a key behind, as a killed holder does.
func TestLeaseExpires(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	leave := func(ttl string) {
		t.Helper()
		ack, err := nc.RequestMsg(&nats.Msg{Subject: "$KV.MONOLITH_LEASES.chief", Data: []byte("dead"), Header: nats.Header{"Nats-TTL": {ttl}}}, wait.Patience)
		if err != nil || strings.Contains(string(ack.Data), "error") {
			t.Fatalf("%v, %v", ack, err)
		}
	}
	leave("1h")
	if _, _, err := b.Leases().TryAcquire(t.Context(), "chief", "two", time.Second); !errors.Is(err, bus.ErrConflict) || !strings.Contains(err.Error(), "dead") {
		t.Fatalf("TryAcquire = %v", err)
	}
	leave("1s")
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	l, release, err := b.Leases().Acquire(ctx, "chief", "two", time.Second)
	if err != nil || l.Epoch < 2 {
		t.Fatalf("Acquire = %+v, %v", l, err)
	}
	// Somebody takes the key by force: the holder learns it at its next renewal.
	if _, err := nc.RequestMsg(&nats.Msg{Subject: "$KV.MONOLITH_LEASES.chief", Data: []byte("thief")}, wait.Patience); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Lost:
	case <-ctx.Done():
		t.Fatal("the holder never learns that it lost the lease")
	}
	release()
}

func TestFullAndTooLarge(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL(), LogMaxBytes: 256 << 10, SyncMaxBytes: 1 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = b.Log().Append(ctx, draft("a", fmt.Sprint(n, strings.Repeat("x", 8<<10)), bus.Any))
	}
	if !errors.Is(err, bus.ErrFull) || n < 5 {
		t.Fatalf("append %d = %v, want a full stream", n, err)
	}
	last, lerr := b.Log().Last(ctx)
	if lerr != nil || last != uint64(n-1) {
		t.Fatalf("the log ends at %d, %v, %d were acked", last, lerr, n-1)
	}
	var wg sync.WaitGroup // grouped appends hear the same
	for i := range 50 {
		wg.Go(func() {
			if _, err := b.Log().Append(ctx, draft("b", fmt.Sprint(i, strings.Repeat("y", 16<<10)), bus.Any)); !errors.Is(err, bus.ErrFull) {
				t.Errorf("Append = %v", err)
			}
		})
	}
	wg.Wait()

	// The sync stream goes on and forgets: a follower that was too slow hears of it.
	subject := bus.DeltaSubject("t", "job", "0")
	first := make(chan struct{})
	hold := make(chan struct{})
	got := 0
	errc := make(chan error, 1)
	go func() {
		errc <- b.Deltas().Follow(ctx, 1, 0, []string{subject}, func(bus.StoredDelta) error {
			if got++; got == 1 {
				close(first)
				<-hold
			}
			return nil
		})
	}()
	const deltas = 80 // of 256 KiB: more than what is on its way to the follower and what is kept
	for i := range deltas {
		if _, err := b.Deltas().Publish(ctx, bus.DeltaDraft{Subject: subject, Expect: bus.Any, Data: make([]byte, 256<<10)}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-first
		}
	}
	close(hold)
	if err := <-errc; !errors.Is(err, bus.ErrTrimmed) || got >= deltas {
		t.Fatalf("Follow = %v after %d of %d deltas", err, got, deltas)
	}
}

// TestBarePublish is what the nats CLI does.
func TestBarePublish(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	b := connect(t, jetstream.Config{URL: s.URL()})
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ack, err := nc.Request("monolith.t.model.m.request", []byte(`{"unloadRequested":{"reason":"by hand"}}`), wait.Patience)
	if err != nil || !strings.Contains(string(ack.Data), `"stream":"MONOLITH"`) {
		t.Fatalf("%v, %v", ack, err)
	}
	r, err := b.Log().Get(t.Context(), 1)
	if err != nil || r.Err != nil || r.Header.ID != "MONOLITH-1" || r.Header.Type != "unloadRequested" {
		t.Fatalf("Get = %+v, %v", r, err)
	}
	if ack, err := nc.Request("monolith.t.model.m.request", make([]byte, 900<<10), wait.Patience); err != nil || !strings.Contains(string(ack.Data), "10054") {
		t.Fatalf("a message that no letter could hold: %v, %v", ack, err)
	}
	// No stream swallows a command, a signal or an unknown context.
	for _, subject := range []string{"monolith.t.cmd.portal.load", "monolith.t.signal.x", "monolith.t.nonsense.x"} {
		if _, err := nc.Request(subject, nil, wait.Patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v, want nobody", subject, err)
		}
	}
	stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: "t", Name: "ps.job.0", Version: "1.0.0", Endpoints: map[string]bus.Handler{
		"hold": func(context.Context, []byte) ([]byte, error) {
			return nil, &bus.CommandError{Code: "INVALID", Message: "no"}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	m, err := nc.Request("monolith.t.cmd.ps.job.0.hold", nil, wait.Patience)
	if err != nil || string(m.Data) != `{"error":{"code":"INVALID","message":"no"}}` || m.Header.Get("Nats-Service-Error-Code") != "INVALID" {
		t.Fatalf("refusal %+v, %v", m, err)
	}
	info, err := nc.Request("$SRV.INFO.ps-job-0", nil, wait.Patience)
	if err != nil || !strings.Contains(string(info.Data), `"subject":"monolith.t.cmd.ps.job.0.hold"`) {
		t.Fatalf("info %s, %v", info.Data, err)
	}
}

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, 0)
	if _, err := natsserver.Start(natsserver.Config{Dir: dir}); err == nil {
		t.Error("two servers share a folder")
	}
	var wg sync.WaitGroup // any number of processes may create the streams at once
	for range 6 {
		wg.Go(func() {
			b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: s.URL()})
			if err != nil {
				t.Error(err)
				return
			}
			b.Close()
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := jetstream.Connect(ctx, jetstream.Config{URL: "nats://127.0.0.1:1"}); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("Connect to nobody = %v", err)
	}
	if _, err := jetstream.Connect(ctx, jetstream.Config{}); !errors.Is(err, events.ErrInvalid) {
		t.Errorf("Connect to nothing = %v", err)
	}
}

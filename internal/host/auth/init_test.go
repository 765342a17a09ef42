package auth_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/catalog/catalogtest"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// world is a nats-server under keys that were just made.
type world struct {
	t   *testing.T
	dir string
	url string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "keys")}
	if err := auth.Init(auth.Config{Dir: w.dir, Listen: fmt.Sprintf("127.0.0.1:%d", port), Valid: time.Hour}, time.Now()); err != nil {
		t.Fatal(err)
	}
	w.url = oracle.NATSServerOf(t, filepath.Join(w.dir, auth.ServerConf), port).URL
	return w
}

func (w *world) in(name string) string { return filepath.Join(w.dir, name) }

func (w *world) keys(who string) mtls.Files {
	return mtls.Files{Cert: w.in(who + ".pem"), Key: w.in(who + ".key"), CA: w.in(auth.CAFile)}
}

// bus is the connection of a role.
func (w *world) bus(who string) bus.Bus {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), wait.Patience)
	defer cancel()
	b, err := jetstream.Connect(ctx, jetstream.Config{URL: w.url, Name: who, BZID: "demo", Keys: w.keys(who), CredsFile: w.in(who + ".nk")})
	if err != nil {
		w.t.Fatalf("%s: %v", who, err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

// plain is a connection that knows nothing of this project.
func (w *world) plain(who string) *nats.Conn {
	w.t.Helper()
	seed, err := nats.NkeyOptionFromSeed(w.in(who + ".nk"))
	if err != nil {
		w.t.Fatal(err)
	}
	nc, err := nats.Connect(w.url, seed, nats.RootCAs(w.in(auth.CAFile)), nats.ClientCert(w.in(who+".pem"), w.in(who+".key")), nats.Timeout(wait.Patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		w.t.Fatalf("%s: %v", who, err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// refused does something and says whether the server forbids that on the subject.
func refused(t *testing.T, nc *nats.Conn, what, subject string, do func() error) bool {
	t.Helper()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(wait.Patience); err != nil { // a refusal comes before the answer to this
		t.Fatal(err)
	}
	err := nc.LastError()
	return err != nil && strings.Contains(strings.ToLower(err.Error()), fmt.Sprintf("permissions violation for %s to %q", what, strings.ToLower(subject)))
}

// owners are those of the architecture's table.
var owners = map[string]string{
	"model": "portal", "layout": "portal", "publish": "publisher", "container": "replica-registry", "replica": "replica-registry", "znode": "replica-registry",
	"server": "tfs-supervisor", "sync": "model-sync", "training": "trainer", "shard": "ps",
}

// TestOracleEachRoleOnEachSubject has everybody who has keys try every kind of subject of a real
// nats-server: a fact is stated by its owner alone, and so for everything else.
func TestOracleEachRoleOnEachSubject(t *testing.T) {
	w := newWorld(t)
	w.bus("portal") // which makes the streams
	acts := []string{"portal", "publisher", "replica-registry", "model-sync", "tfs-supervisor", "ps", "trainer", "operator"}
	may := map[string][]string{ // who may publish
		"msync.demo.movies.0":                       {"ps"},
		"mdlq.demo.MONOLITH.7":                      acts,
		"mdlqnote.demo.settled.x":                   acts,
		"$KV.MONOLITH_LEASES.demo.publisher":        acts,
		"monolith.demo.cmd.portal.load":             acts,
		"mpulse.demo.cmd.pulse.registry.x":          acts,
		"mpulse.demo.applied.entry-0":               acts,
		"$JS.API.STREAM.PURGE.MONOLITH":             {"operator"},
		"$JS.API.STREAM.PURGE.MONOLITH_SYNC":        {"ps"},
		"$JS.API.STREAM.MSG.DELETE.MONOLITH":        {"operator"},
		"$JS.API.STREAM.DELETE.MONOLITH":            nil,
		"$JS.API.STREAM.UPDATE.MONOLITH":            {"portal", "operator"},
		"$JS.API.STREAM.CREATE.MONOLITH_SYNC":       {"portal", "operator"},
		"$JS.API.STREAM.UPDATE.KV_MONOLITH_TRIMMED": {"portal", "operator"},
		"$JS.API.STREAM.CREATE.MINE":                nil,
		"$JS.API.STREAM.UPDATE.OTHERS":              nil,
		"$JS.API.STREAM.INFO.MONOLITH":              append(slices.Clone(acts), "reader"),
		"$SYS.REQ.SERVER.PING":                      nil,
		"elsewhere":                                 nil,
		"monolith.demo.unknown.x":                   nil,
		"monolith.demo.model.x.request.further":     nil,
	}
	for _, c := range catalog.Contexts {
		owner := owners[c]
		if owner == "" {
			t.Fatalf("nobody owns the facts of context %s", c)
		}
		may["monolith.demo."+c+".x"] = []string{owner}
		may["monolith.other."+c+".x"] = []string{owner}
		may["monolith.demo."+c+".x.request"] = acts
	}
	hears := map[string][]string{ // who may subscribe
		"monolith.demo.cmd.portal.load":        {"portal"},
		"monolith.demo.cmd.publisher.state":    {"publisher"},
		"monolith.demo.cmd.registry.replicas":  {"replica-registry"},
		"mpulse.demo.cmd.pulse.registry.x":     {"replica-registry"},
		"monolith.demo.cmd.ps.movies.0.stats":  {"ps"},
		"monolith.demo.cmd.trainer.movies.cut": {"trainer"},
		"monolith.demo.model.>":                append(slices.Clone(acts), "reader"),
		"mpulse.demo.lease.*":                  append(slices.Clone(acts), "reader"),
		"monolith.>":                           nil,
		">":                                    nil,
		"$SYS.>":                               nil,
	}
	tried := 0
	for _, h := range auth.Who {
		nc := w.plain(h.Name)
		for subject, allowed := range may {
			tried++
			no := refused(t, nc, "publish", subject, func() error { return nc.Publish(subject, []byte("{")) })
			if no == slices.Contains(allowed, h.Name) {
				t.Errorf("%s publishes to %s: refused %v", h.Name, subject, no)
			}
		}
		for subject, allowed := range hears {
			tried++
			no := refused(t, nc, "subscription", subject, func() error { _, err := nc.SubscribeSync(subject); return err })
			if no == slices.Contains(allowed, h.Name) {
				t.Errorf("%s subscribes to %s: refused %v", h.Name, subject, no)
			}
		}
	}
	if tried < len(auth.Who)*40 {
		t.Errorf("only %d attempts", tried)
	}
}

// Each owner states its facts through the bus, and everybody reads them.
func TestOracleOwnersStateFacts(t *testing.T) {
	w := newWorld(t)
	w.bus("portal")
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	stated := map[string]bool{}
	buses := map[string]bus.Bus{}
	for _, c := range catalogtest.Golden(t) {
		parts, err := c.Subject.Parse()
		if err != nil {
			t.Fatal(err)
		}
		who := owners[parts.Context]
		if parts.Request {
			who = "operator"
		}
		if buses[who] == nil {
			buses[who] = w.bus(who)
		}
		if _, err := buses[who].Log().Append(ctx, bus.Draft{Subject: c.Subject, Event: c.Event, Expect: bus.Any}); err != nil {
			t.Errorf("%s states %s: %v", who, c.Name, err)
		}
		stated[parts.Context] = true
	}
	if len(stated) != len(catalog.Contexts) {
		t.Errorf("facts of %d contexts were stated, there are %d", len(stated), len(catalog.Contexts))
	}
	reader := w.bus("reader").Log()
	last, err := reader.Last(ctx)
	if err != nil || last == 0 {
		t.Fatalf("the reader sees %d events, %v", last, err)
	}
	read := uint64(0)
	if err := reader.Follow(ctx, 1, last, func(events.Recorded) error { read++; return nil }); err != nil || read != last {
		t.Errorf("the reader has read %d of %d events: %v", read, last, err)
	}
	lease, release, err := buses["ps"].Leases().TryAcquire(ctx, "demo.x", "ps", time.Minute)
	if err != nil || lease.Epoch == 0 {
		t.Fatalf("a lease: %v", err)
	}
	release()
}

// The folder appears whole, its secrets for its owner alone, and is never written over.
func TestInit(t *testing.T) {
	parent := t.TempDir()
	cfg := auth.Config{Dir: filepath.Join(parent, "keys"), Listen: "10.0.0.7:4222", Hosts: []string{"10.0.0.7", "a.example"}, Valid: time.Hour}
	now := time.Now()
	if err := auth.Init(cfg, now); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the folder: %v, %v", entries, err)
	}
	err = filepath.WalkDir(cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	pool := x509.NewCertPool()
	raw, err := os.ReadFile(filepath.Join(cfg.Dir, auth.CAFile))
	if err != nil || !pool.AppendCertsFromPEM(raw) {
		t.Fatalf("the authority: %v", err)
	}
	for _, h := range auth.Who {
		raw, err := os.ReadFile(filepath.Join(cfg.Dir, h.Name+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(raw)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"10.0.0.7", "a.example", "127.0.0.1", "localhost"} {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: now}); err != nil {
					t.Errorf("%s at %s: %v", h.Name, host, err)
				}
			}
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now.Add(2 * time.Hour)}); err == nil {
			t.Errorf("%s never ends", h.Name)
		}
		if cert.Subject.CommonName != h.Name {
			t.Errorf("%s is called %s", h.Name, cert.Subject.CommonName)
		}
	}
	if err := auth.Init(cfg, now); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("over a folder that is there: %v", err)
	}
	for _, wrong := range []auth.Config{
		{Dir: cfg.Dir + "2", Listen: "nowhere", Valid: time.Hour},
		{Dir: cfg.Dir + "2", Listen: "h:1", Valid: time.Second},
		{Dir: cfg.Dir + "2", Listen: "h:1", Valid: time.Hour, Hosts: []string{"h:1"}},
		{Dir: filepath.Join(cfg.Dir, auth.CAFile, "x"), Listen: "h:1", Valid: time.Hour},
	} {
		if err := auth.Init(wrong, now); err == nil {
			t.Errorf("%+v passes", wrong)
		}
	}
}

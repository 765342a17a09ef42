package modelsync_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/modelsync"
)

// cluster is some hosts, each with a folder and keys of its own, and one container.
type cluster struct {
	t      *testing.T
	b      bus.Bus
	export string
	dirs   map[string]string
	keys   *certs.Authority
}

func newCluster(t *testing.T, hosts ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, b: mem.New(), dirs: map[string]string{}, keys: certs.NewAuthority(t),
		export: controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1)}
	for _, h := range hosts {
		c.dirs[h] = filepath.Join(t.TempDir(), "copies")
		c.state("container", "on-"+h, &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{
			Container: &container.Container{Id: "on-" + h, Kind: "serving", Host: h}}}})
	}
	return c
}

func (c *cluster) state(context, aggregate string, e proto.Message) uint64 {
	c.t.Helper()
	seqs, err := c.b.Log().Append(c.t.Context(), bus.Draft{Subject: events.Join(controltest.BZID, context, aggregate), Expect: bus.Any, Event: e})
	if err != nil {
		c.t.Fatal(err)
	}
	return seqs[0]
}

func (c *cluster) run(host string, change ...func(*modelsync.Config, *services.Env)) (stop func()) {
	c.t.Helper()
	return start(c.t, c.b, c.dirs[host], append([]func(*modelsync.Config, *services.Env){func(cfg *modelsync.Config, env *services.Env) {
		cfg.Host, cfg.TransferListen, env.TLS = host, "127.0.0.1:0", c.keys.Issue(host)
	}}, change...)...)
}

// plan has ps_0 served on hosts.
func (c *cluster) plan(hosts ...string) uint64 {
	c.t.Helper()
	p := &publish.Planned{ModelName: "m", ModelDir: c.export, Version: 1, NumPs: 1}
	for i, h := range hosts {
		p.Assignments = append(p.Assignments, &publish.Assignment{Container: "on-" + h, Replica: uint32(i),
			SubModels: map[string]string{"ps_0": filepath.Join(c.export, "ps_0", "1")}})
	}
	return c.state("publish", "m", &publish.Event{Body: &publish.Event_Planned{Planned: p}})
}

func (c *cluster) copyOn(host string) string { return copyOf(c.dirs[host], c.export, "ps_0", 1) }

// arrives waits for the fact that the copy is on the host.
func (c *cluster) arrives(from uint64, host string) *transfer.ModelCopied {
	c.t.Helper()
	return controltest.Next(c.t, c.b, from, func(r events.Recorded) bool {
		e, _ := r.Event.(*transfer.Event)
		return e.GetModelCopied().GetHost() == host
	}).Event.(*transfer.Event).GetModelCopied()
}

// exported says what lies in the export, as a job does.
func (c *cluster) exported() (identity string) {
	c.t.Helper()
	identity, size, err := checkpoint.Written(filepath.Join(c.export, "ps_0", "1"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.state("training", "j", &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 1, ModelDir: c.export,
		SubModels: []string{"entry", "ps_0"}, Parts: map[string]*training.ExportedPart{"ps_0": {Export: identity, Bytes: size}}}}})
	return identity
}

func (c *cluster) gone() {
	c.t.Helper()
	if err := os.RemoveAll(c.export); err != nil {
		c.t.Fatal(err)
	}
}

// A host that does not see the export has it from others' copies: of two, one is damaged, and the
// fact about what was exported tells which.
func TestFetchFromOtherHosts(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	identity := c.exported()
	c.run("a")
	c.run("b")
	seq := c.plan("a", "b")
	c.arrives(seq, "a")
	c.arrives(seq, "b")
	c.gone()
	damaged := filepath.Join(c.copyOn("a"), "dense.tfrecord")
	raw, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(damaged, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	seq = c.plan("a", "b", "c")
	c.run("c", func(_ *modelsync.Config, e *services.Env) { e.Metrics = reg })
	if m := c.arrives(seq, "c"); m.GetExport() != identity || m.GetPath() != c.copyOn("c") || m.GetSource() != filepath.Join(c.export, "ps_0", "1") || m.GetBytes() == 0 {
		t.Errorf("fetched %v, exported was %s", m, identity)
	}
	if _, err := checkpoint.ReadShard(c.copyOn("c")); err != nil {
		t.Error(err)
	}
	if n := controltest.Count(t, c.b, controltest.Of("targetFailed")); n != 0 {
		t.Errorf("%d failures\n%s", n, controltest.Story(t, c.b))
	}
	wait.Until(t, "the metrics of a copy rise, which they do behind its fact", func() error {
		families, err := reg.Gather()
		seen := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				seen[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		for _, name := range []string{"fetched_bytes_total", "copied_bytes_total", "delay_seconds", "copy_seconds"} {
			if seen["monolith_modelsync_"+name] == 0 {
				err = errors.Join(err, fmt.Errorf("%s stands at 0", name))
			}
		}
		return err
	})
}

// A host waits for one that has it, and says so; a host that comes up with a copy is asked.
func TestFetchOnceSomebodyHasIt(t *testing.T) {
	c := newCluster(t, "a", "b")
	stop := c.run("a")
	seq := c.plan("a")
	c.arrives(seq, "a")
	stop()
	c.gone()
	seq = c.plan("a", "b")
	c.run("b")
	failed := controltest.Next(t, c.b, seq, controltest.Of("targetFailed")).Event.(*transfer.Event).GetTargetFailed()
	if failed.GetTarget() != "b" || !strings.Contains(failed.GetReason(), "no other one has it") {
		t.Errorf("failed %v", failed)
	}
	c.run("a")
	c.arrives(seq, "b")
}

// Without certificates a host on another machine is not asked, and the failure names the flags; with --insecure-transfer
// it is.
func TestPlainTextStaysOnThisMachine(t *testing.T) {
	c := newCluster(t, "b")
	asked := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	c.state(transfer.Context, "a", &transfer.Event{Body: &transfer.Event_SourceOffered{SourceOffered: &transfer.SourceOffered{
		Host: "a", Address: "0.0.0.0:" + port, Folders: []string{c.export}}}}) // leads here and does not say so
	c.gone()
	for _, insecure := range []bool{false, true} {
		seq := c.plan("b")
		stop := c.run("b", func(cfg *modelsync.Config, env *services.Env) { env.TLS, cfg.InsecureTransfer = mtls.Files{}, insecure })
		failed := controltest.Next(t, c.b, seq, controltest.Of("targetFailed")).Event.(*transfer.Event).GetTargetFailed()
		stop()
		if named := strings.Contains(failed.GetReason(), "--insecure-transfer"); named == insecure || len(asked) == 1 != insecure {
			t.Errorf("insecure %t: asked %d times, failed with %s", insecure, len(asked), failed.GetReason())
		}
	}
}

// What a host hands out is said once, and taken back by a start without the port.
func TestOffers(t *testing.T) {
	c := newCluster(t, "a")
	offered := controltest.Of("sourceOffered")
	at := func(cfg *modelsync.Config, _ *services.Env) {
		cfg.TransferAdvertise, cfg.Exports = "host-a:8600", []string{"/srv/training/"}
	}
	for range 2 {
		stop := c.run("a", at)
		o := controltest.Next(t, c.b, 1, offered).Event.(*transfer.Event).GetSourceOffered()
		if o.GetHost() != "a" || o.GetAddress() != "host-a:8600" || len(o.GetFolders()) != 1 || o.GetFolders()[0] != "/srv/training" {
			t.Errorf("offered %v", o)
		}
		stop()
	}
	c.run("a", func(cfg *modelsync.Config, _ *services.Env) { cfg.TransferListen = "" })
	controltest.Next(t, c.b, 1, func(r events.Recorded) bool {
		e, _ := r.Event.(*transfer.Event)
		return e.GetSourceOffered() != nil && e.GetSourceOffered().GetAddress() == ""
	})
	if n := controltest.Count(t, c.b, offered); n != 2 {
		t.Errorf("said %d times\n%s", n, controltest.Story(t, c.b))
	}
}

// Beyond loopback transfers want keys of both ends, or the flag that does without.
func TestTransferPort(t *testing.T) {
	keys := certs.NewAuthority(t).Issue("a")
	open := keys
	open.CA = ""
	for _, tc := range []struct {
		name string
		set  func(*modelsync.Config, *services.Env)
		want string
	}{
		{"loopback", func(c *modelsync.Config, _ *services.Env) { c.TransferListen = "127.0.0.1:0" }, ""},
		{"keys", func(c *modelsync.Config, e *services.Env) { c.TransferListen, e.TLS = "10.0.0.7:8600", keys }, ""},
		{"its own keys", func(c *modelsync.Config, _ *services.Env) { c.TransferListen, c.TransferTLS = "10.0.0.7:8600", keys }, ""},
		{"by name", func(c *modelsync.Config, _ *services.Env) {
			c.TransferListen, c.InsecureTransfer = "10.0.0.7:8600", true
		}, ""},
		{"nothing", func(c *modelsync.Config, _ *services.Env) { c.TransferListen = "10.0.0.7:8600" }, "--insecure-transfer"},
		{"no authorities", func(c *modelsync.Config, e *services.Env) { c.TransferListen, e.TLS = "10.0.0.7:8600", open }, "authorities"},
		{"no authorities, on loopback", func(c *modelsync.Config, e *services.Env) { c.TransferListen, e.TLS = "127.0.0.1:0", open }, "authorities"},
		{"a status port's keys alone", func(_ *modelsync.Config, e *services.Env) { e.TLS = open }, ""},
		{"both", func(c *modelsync.Config, _ *services.Env) {
			c.TransferListen, c.InsecureTransfer, c.TransferTLS = "10.0.0.7:8600", true, keys
		}, "contradict"},
		{"nobody could connect", func(c *modelsync.Config, e *services.Env) { c.TransferListen, e.TLS = ":8600", keys }, "--transfer-advertise"},
		{"exports without a port", func(c *modelsync.Config, _ *services.Env) { c.Exports = []string{"/srv"} }, "--transfer-listen"},
		{"a relative folder", func(c *modelsync.Config, _ *services.Env) {
			c.TransferListen, c.Exports = "127.0.0.1:0", []string{"srv"}
		}, "absolute"},
		{"an address without a port", func(c *modelsync.Config, _ *services.Env) {
			c.TransferListen, c.TransferAdvertise = "127.0.0.1:0", "host-a"
		}, "host:port"},
	} {
		cfg, env := modelsync.Config{Host: "h", Dir: "/copies"}, controltest.Env(mem.New())
		tc.set(&cfg, &env)
		_, err := modelsync.New(cfg, env)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

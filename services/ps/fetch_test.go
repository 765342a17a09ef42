package ps

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/internal/peer"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// otherHost is a machine that hands out the job's folder, which lies at dir, and says so.
func (w *world) otherHost(name, dir string) (stop func()) {
	w.t.Helper()
	return w.askedHost(name, dir, func() {})
}

// askedHost is otherHost with a say in when it answers.
func (w *world) askedHost(name, dir string, asked func()) (stop func()) {
	w.t.Helper()
	h := &peer.Server{Log: slog.New(slog.DiscardHandler), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent", Help: "bytes"}),
		Open: func(a peer.Ask) (*os.Root, error) {
			asked()
			if a.Dir != w.dir {
				return nil, peer.ErrNotHere
			}
			return os.OpenRoot(filepath.Join(dir, a.Part))
		}}
	srv := httptest.NewServer(h.Handler())
	w.t.Cleanup(srv.Close)
	w.append("sync", name, &transfer.Event{Body: &transfer.Event_SourceOffered{SourceOffered: &transfer.SourceOffered{
		Host: name, Address: srv.Listener.Addr().String(), Folders: []string{filepath.Dir(w.dir)}}}})
	return srv.Close
}

// awaitSources waits until the shard knows of n hosts.
func (p *proc) awaitSources(n int) {
	p.t.Helper()
	wait.For(p.t, "the shard knows who hands out", func() bool { return len(p.sources(filepath.Join(p.dir, "x"))) == n })
}

// TestAShardFetchesItsPart starts a shard on a machine whose disk is empty: it has its part of the newest
// checkpoint from the machine where it ran before, and keeps it. What is damaged is fetched anew.
func TestAShardFetchesItsPart(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	c := w.checkpoint(1, 1, 0)
	w.save(c)
	then := p.hash()
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	away := w.otherHost("a", w.dir)
	cfg := w.config()
	cfg.Dir = t.TempDir()
	here := filepath.Join(cfg.Dir, c.GetShards()[0].GetPath())
	moved := w.start(cfg)
	if got := moved.hash(); got != then || moved.st.Standing().Next[0] != 10 {
		t.Errorf("on the other machine the shard stands at %v with hash %s, it was %s", moved.st.Standing().Next, got, then)
	}
	if err := moved.stop(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(here)
	if err != nil || len(files) < 2 {
		t.Fatalf("fetched: %v, %v", files, err)
	}
	for _, f := range files { // and no mark of the fetch
		if _, err := os.Stat(filepath.Join(w.dir, c.GetShards()[0].GetPath(), f.Name())); err != nil {
			t.Errorf("%s was not in what was fetched", f.Name())
		}
	}
	damaged := filepath.Join(here, files[0].Name())
	if err := os.Truncate(damaged, 3); err != nil {
		t.Fatal(err)
	}
	again := w.start(cfg)
	if got := again.hash(); got != then {
		t.Errorf("with a damaged part the shard starts at %s, it was %s", got, then)
	}
	if err := again.stop(); err != nil {
		t.Fatal(err)
	}
	away() // it is not asked any more
	if got := w.start(cfg).hash(); got != then {
		t.Errorf("without the other machine it starts at %s, it was %s", got, then)
	}
	left, err := os.ReadDir(filepath.Dir(here))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the part lie %v, %v", left, err)
	}
}

// TestPartsThatAreNotFetched: what another host has of a part and is not what was written takes no place,
// and the verdict says who was asked.
func TestPartsThatAreNotFetched(t *testing.T) {
	w := newWorld(t)
	p := w.start(w.config())
	p.teach(pstest.Teach(0, 0, 0, 10, 1, 1, 2))
	part := factOf(w.checkpoint(1, 1, 0).GetShards()[0])
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, part.Path)); err != nil {
		t.Fatal(err)
	}
	fault := func(part shardcmd.Part) string {
		t.Helper()
		a := must[shardcmd.CheckResponse](w, 0, shardcmd.Check, shardcmd.CheckRequest{Checkpoint: 1, Dir: w.dir, Parts: []shardcmd.Part{part}})
		return a.Parts[0].Fault
	}
	if got := fault(part); !strings.Contains(got, "no other host hands it out") {
		t.Errorf("nobody has it: %q", got)
	}
	w.otherHost("b", other)
	p.awaitSources(1)
	wrong := part
	wrong.Manifest, wrong.Hash = "", "h" // as facts of an older build say less
	if got := fault(wrong); !strings.Contains(got, "is not what was written") {
		t.Errorf("of another attempt: %q", got)
	}
	wrong.Manifest = strings.Repeat("0", 64)
	if got := fault(wrong); !strings.Contains(got, "no other host has it") {
		t.Errorf("of another manifest: %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, filepath.Dir(part.Path))); err != nil || len(left) != 0 {
		t.Errorf("what was refused is left: %v, %v", left, err)
	}
	if got := fault(part); got != "" {
		t.Errorf("it is there, and not fetched: %s", got)
	}
	far := part
	far.Path = "exported_models/ps_0/1"
	if err := os.RemoveAll(filepath.Join(w.dir, far.Path)); err != nil {
		t.Fatal(err)
	}
	if got := fault(far); !strings.Contains(got, "no part of a checkpoint") {
		t.Errorf("of a folder that is no part: %q", got)
	}
}

// lost is a job of two shards in one folder whose newest checkpoint lacks the part of shard 0; away has it.
func lost(t *testing.T) (w *world, shards [2]*proc, c *training.Checkpoint, away string) {
	w, away = newWorld(t), t.TempDir()
	for i := range shards {
		cfg := w.config()
		cfg.Shards, cfg.Shard = 2, i
		shards[i] = w.start(cfg)
		shards[i].teach(pstest.Teach(i, 0, 0, 10, 1, int64(i), int64(i+2)))
	}
	c = w.checkpoint(2, 1, 0)
	w.save(c)
	if err := os.CopyFS(away, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, c.GetShards()[0].GetPath())); err != nil {
		t.Fatal(err)
	}
	return w, shards, c, away
}

// TestOneFetchOfAPartAtATime has two shards with one folder, and one shard twice, fetch a part at once, as when
// they reshard. One brings it, the others take what it brought.
func TestOneFetchOfAPartAtATime(t *testing.T) {
	w, shards, c, away := lost(t)
	f := c.GetShards()[0]
	place := filepath.Join(w.dir, f.GetPath())
	var met sync.WaitGroup
	const fetches = 4
	met.Add(fetches)
	var asks atomic.Int32
	w.askedHost("a", away, func() { // nobody is told what there is before all have asked
		if asks.Add(1) <= fetches {
			met.Done()
			met.Wait()
		}
	})
	shards[0].awaitSources(1)
	shards[1].awaitSources(1)
	if err := os.WriteFile(filepath.Join(filepath.Dir(place), ".part-ps_0.lock"), nil, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	var errs [fetches]error
	var brought [fetches]os.FileInfo
	var done sync.WaitGroup
	for i := range fetches {
		done.Go(func() {
			if errs[i] = shards[i%2].fetchPart(soon(t), w.dir, f); errs[i] == nil {
				brought[i], errs[i] = os.Stat(place)
			}
		})
	}
	done.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatalf("fetches at once: %v", err)
	}
	for _, b := range brought {
		if !os.SameFile(b, brought[0]) {
			t.Error("a fetch replaced what another had brought")
		}
	}
	if _, err := shards[1].readHere(c, 0); err != nil {
		t.Errorf("what they leave: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(place)); err != nil || len(left) != 2 {
		t.Errorf("beside the parts lie %v, %v", left, err)
	}
}

// TestAFetchWaitsForAnother for no longer than its context.
func TestAFetchWaitsForAnother(t *testing.T) {
	w, shards, c, away := lost(t)
	f := c.GetShards()[0]
	w.otherHost("a", away)
	shards[0].awaitSources(1)
	unlock, err := durable.Lock(soon(t), filepath.Join(w.dir, filepath.Dir(f.GetPath()), ".part-ps_0.lock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := shards[0].fetchPart(ctx, w.dir, f); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another fetch") {
		t.Errorf("beside a fetch that takes its time: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := shards[0].fetchPart(soon(t), w.dir, f); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestAFetchReplacesOnlyDamage: what could not be looked at is not taken for damaged.
func TestAFetchReplacesOnlyDamage(t *testing.T) {
	w, shards, c, away := lost(t)
	f := c.GetShards()[0]
	w.otherHost("a", away)
	shards[0].awaitSources(1)
	place := filepath.Join(w.dir, f.GetPath())
	if err := os.Symlink("ps_0", place); err != nil { // which opens as little as a disk that gives no answer
		t.Fatal(err)
	}
	if err := shards[0].fetchPart(soon(t), w.dir, f); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("in a place that cannot be looked at: %v", err)
	}
	if _, err := os.Lstat(place); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

package modelmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// host is one where versions of model m are downloaded.
type host struct {
	t            *testing.T
	source, dest string
}

func newHost(t *testing.T) host {
	dir := t.TempDir()
	return host{t, filepath.Join(dir, "p2p"), filepath.Join(dir, "model_data")}
}

func (h host) write(path, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// sub is where a sub-model of a download lies.
func (h host) sub(version int64, sub string) string {
	v := strconv.FormatInt(version, 10)
	return filepath.Join(h.source, "m@"+v, "m", sub, v)
}

// marks says that the download of a version is whole.
func (h host) marks(version int64) string {
	path := filepath.Join(h.source, marker("m", strconv.FormatInt(version, 10)))
	h.write(path, "")
	return path
}

// downloads puts a whole version there.
func (h host) downloads(versions ...int64) {
	for _, v := range versions {
		for _, sub := range []string{"ps_item_embedding_0", "ps_item_embedding_1"} {
			h.write(filepath.Join(h.sub(v, sub), "saved_model.pb"), fmt.Sprint(sub, v))
		}
		h.marks(v)
	}
}

// is what the model server would see: the versions of each sub-model, and nothing unfinished beside them.
func (h host) is(want string) {
	h.t.Helper()
	var got []string
	subs, err := folders(os.DirFS(h.dest), "m")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, sub := range subs {
		entries, err := os.ReadDir(filepath.Join(h.dest, "m", sub))
		if err != nil {
			h.t.Fatal(err)
		}
		line := strings.TrimPrefix(sub, "ps_item_embedding_") + ":"
		for _, e := range entries {
			line += " " + e.Name()
			if text, err := os.ReadFile(filepath.Join(h.dest, "m", sub, e.Name(), "saved_model.pb")); err != nil || string(text) != sub+e.Name() {
				h.t.Errorf("%s of %s is %q, %v", e.Name(), sub, text, err)
			}
		}
		got = append(got, line)
	}
	if got := strings.Join(got, ", "); got != want {
		h.t.Errorf("here are %q, want %q", got, want)
	}
}

// locks are the read locks that lie beside downloads.
func (h host) locks() []string {
	left, err := filepath.Glob(filepath.Join(h.source, "*"+readLock))
	if err != nil {
		h.t.Fatal(err)
	}
	return left
}

func (h host) manager(metrics prometheus.Registerer) *Manager {
	h.t.Helper()
	m, err := New(Config{Model: "m", Source: h.source, Dest: h.dest}, slog.New(slog.DiscardHandler), metrics)
	if err != nil {
		h.t.Fatal(err)
	}
	return m
}

// runs has a manager run until the test ends, or stop is called.
func (h host) runs() (m *Manager, stop func()) {
	h.t.Helper()
	m = h.manager(nil)
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	synctest.Wait()
	return m, func() {
		cancel()
		if err := <-done; err != nil {
			h.t.Errorf("Run = %v", err)
		}
	}
}

// pass lets a manager look again.
func pass() { time.Sleep(every); synctest.Wait() }

func TestBringsTheNewest(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		m, stop := h.runs()
		defer stop()
		h.write(filepath.Join(h.sub(1234567, "ps_item_embedding_0"), "saved_model.pb"), "half")
		time.Sleep(firstEvery)
		synctest.Wait()
		h.is("")
		select {
		case <-m.Ready():
			t.Fatal("it is ready before a download is whole")
		default:
		}
		h.downloads(1234567)
		h.write(filepath.Join(h.source, "m@"+"other"+writeDone), "")
		h.write(filepath.Join(h.source, "n@9999999"+writeDone), "")
		time.Sleep(firstEvery)
		<-m.Ready()
		h.is("0: 1234567, 1: 1234567")

		h.downloads(1234566)
		pass()
		h.is("0: 1234567, 1: 1234567") // an older one is none of the newest
		h.downloads(1234568)
		pass()
		h.is("0: 1234567 1234568, 1: 1234567 1234568")
		if left := h.locks(); len(left) != 0 {
			t.Errorf("locks %v are left", left)
		}
	})
}

// Nine follows ten as text, which is how the original compares versions.
func TestVersionsAreNumbers(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		h.downloads(9)
		_, stop := h.runs()
		defer stop()
		h.downloads(10)
		pass()
		h.is("0: 10 9, 1: 10 9")
	})
}

func TestFiveVersionsStay(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		h.downloads(1)
		_, stop := h.runs()
		defer stop()
		h.write(filepath.Join(h.dest, "m", "notes", "readme"), "not a version")
		for v := int64(2); v <= 7; v++ {
			h.downloads(v)
			pass()
		}
		if err := os.RemoveAll(filepath.Join(h.dest, "m", "notes")); err != nil {
			t.Fatal(err)
		}
		h.is("0: 3 4 5 6 7, 1: 3 4 5 6 7")
	})
}

func TestNoFirstVersion(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		m, began := h.manager(nil), time.Now()
		err := m.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no version of model m came in 20m0s: there is no m@<version>.write.done in "+h.source) || time.Since(began) != 20*time.Minute {
			t.Errorf("Run = %v after %v", err, time.Since(began))
		}
	})
}

// What was put at its place before a crash stays, the rest follows, and what a later start finds to be newer than the
// download goes.
func TestGoesOnAfterACrash(t *testing.T) {
	h := newHost(t)
	h.downloads(7)
	h.write(filepath.Join(h.dest, "m", "ps_item_embedding_0", "7", "saved_model.pb"), "ps_item_embedding_07")
	h.write(filepath.Join(h.dest, "m", "ps_item_embedding_0", "8", "saved_model.pb"), "taken back")
	h.write(filepath.Join(h.dest, "m", "ps_item_embedding_0", "6", "saved_model.pb"), "ps_item_embedding_06")
	h.write(filepath.Join(h.dest, "m", "ps_item_embedding_1", modelcopy.Unfinished+"7-x", "saved_model.pb"), "half")
	before, err := os.Stat(filepath.Join(h.dest, "m", "ps_item_embedding_0", "7"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		_, stop := h.runs()
		stop()
	})
	h.t = t
	h.is("0: 6 7, 1: 7")
	if after, err := os.Stat(filepath.Join(h.dest, "m", "ps_item_embedding_0", "7")); err != nil || !os.SameFile(before, after) {
		t.Errorf("what was here is copied again: %v", err)
	}
}

// A version of which a sub-model is missing, or that holds nothing, is not brought in part.
func TestDownloadsThatAreNotWhole(t *testing.T) {
	h := newHost(t)
	synctest.Test(t, func(t *testing.T) {
		h.t = t
		metrics := prometheus.NewRegistry()
		h.downloads(1)
		m := h.manager(metrics)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		<-m.Ready()
		h.downloads(2)
		if err := os.RemoveAll(h.sub(2, "ps_item_embedding_1")); err != nil {
			t.Fatal(err)
		}
		pass()
		h.is("0: 1, 1: 1")
		h.marks(3)
		pass()
		if err := os.MkdirAll(filepath.Dir(filepath.Dir(h.sub(3, "x"))), 0o755); err != nil {
			t.Fatal(err)
		}
		pass()
		h.is("0: 1, 1: 1")
		want := map[string]float64{
			"data.monolith_serving.online.loop_once_failed": 3,
			"data.monolith_serving.online.update.delay":     3 * every.Seconds(),
			"data.monolith_serving.online.version.delay":    float64(time.Now().UnixNano())/1e9 - 1,
		}
		all, err := metrics.Gather()
		if err != nil || len(all) != len(want) {
			t.Errorf("%d metrics, %v", len(all), err)
		}
		for _, f := range all {
			one := f.GetMetric()[0]
			if got := one.GetCounter().GetValue() + one.GetGauge().GetValue(); got != want[f.GetName()] || one.GetLabel()[0].GetValue() != "m" {
				t.Errorf("%s of %v is %v, want %v", f.GetName(), one.GetLabel(), got, want[f.GetName()])
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// onErr is a context that calls do whenever a copy looks whether it has ended.
type onErr struct {
	context.Context
	do func()
}

func (c onErr) Err() error { c.do(); return c.Context.Err() }

// A download that its program begins to remove, which takes the marker away first, is not taken for whole.
func TestDownloadTakenBackMeanwhile(t *testing.T) {
	h := newHost(t)
	h.downloads(1, 2)
	m := h.manager(nil)
	release, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := m.look(t.Context()); err != nil || m.newest.Load().number != 2 {
		t.Fatal(err)
	}
	h.downloads(3)
	ctx := onErr{t.Context(), func() {
		if half, err := filepath.Glob(filepath.Join(h.dest, "m", "*", modelcopy.Unfinished+"*")); err != nil || len(half) > 0 {
			_ = os.Remove(h.marks(3))
		}
	}}
	if err := m.look(ctx); err == nil || !strings.Contains(err.Error(), "version 3: its download was taken back") {
		t.Errorf("look = %v", err)
	}
	h.is("0: 2, 1: 2")
	if err := m.bring(t.Context(), 9); err == nil || !strings.Contains(err.Error(), "its download was taken back") {
		t.Errorf("bring = %v", err)
	}
	if left := h.locks(); len(left) != 0 {
		t.Errorf("locks %v are left", left)
	}
}

// While a version is read its lock is there; one that a killed agent left goes, one that another agent holds stays.
func TestReadLocks(t *testing.T) {
	h := newHost(t)
	h.downloads(1)
	other, dead := filepath.Join(h.source, "m@1"+readLock), filepath.Join(h.source, "m@0"+readLock)
	h.write(dead, "")
	held := flock.New(other)
	if ok, err := held.TryRLock(); err != nil || !ok {
		t.Fatal(err)
	}
	m := h.manager(nil)
	release, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	seen := false
	ctx := onErr{t.Context(), func() {
		if half, err := filepath.Glob(filepath.Join(h.dest, "m", "*", modelcopy.Unfinished+"*")); err == nil && len(half) > 0 {
			seen = slices.Contains(h.locks(), other)
		}
	}}
	if err := m.look(ctx); err != nil || !seen {
		t.Errorf("look = %v, locked while it is read: %v", err, seen)
	}
	if left := h.locks(); !slices.Equal(left, []string{other}) {
		t.Errorf("locks %v are left, want that of the other agent", left)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.look(t.Context()); err != nil || len(h.locks()) != 0 {
		t.Errorf("locks %v are left, %v", h.locks(), err)
	}
}

func TestOneManagerOfAFolder(t *testing.T) {
	h := newHost(t)
	release, err := h.manager(nil).open()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.manager(nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is filled by another agent: give each a rough_sort_model_local_path of its own") {
		t.Errorf("Run = %v", err)
	}
	release()
	again, err := h.manager(nil).open()
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestConfigsThatAreRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		"plain name":              {Model: "a/b", Source: "/p", Dest: "/d"},
		"cannot name a folder":    {Source: "/p", Dest: "/d"},
		"give whole paths":        {Model: "m", Source: "/p"},
		"lies in the other: give": {Model: "m", Source: "/p", Dest: "/p/d"},
		"a folder of its own":     {Model: "m", Source: "/p", Dest: "/p"},
	} {
		if _, err := New(cfg, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// Whatever stands in a folder of downloads, only a marker of the model's tells a version, and tells it as it was made.
func FuzzVersionOf(f *testing.F) {
	for _, name := range []string{"m@7.write.done", "m@07.write.done", "m@7.read.lock", "m@-1.write.done", "mm@7.write.done", "m@7"} {
		f.Add("m", name)
	}
	f.Fuzz(func(t *testing.T, model, name string) {
		if v, ok := versionOf(model, name); ok && (v <= 0 || marker(model, strconv.FormatInt(v, 10)) != name) {
			t.Errorf("%q of %q is version %d", name, model, v)
		}
	})
}

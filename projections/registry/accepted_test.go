package registry_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog/catalogtest"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// accepted is a log of all that an owner may append: each kind of fact as released, and at
// the edge of what its rules allow.
func accepted(t *testing.T) *mem.Bus {
	t.Helper()
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	tree := events.Join("demo", "znode", znode.Aggregate)
	made := func(path string) *znode.Op {
		return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
	}
	cases := []catalogtest.Case{
		{Name: "a session", Subject: tree, Event: &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{
			Session: 72057594037927937, TimeoutMs: 4000, PasswordHash: make([]byte, 32)}}}},
		{Name: "parents", Subject: tree, Event: &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Multi: true,
			Ops: []*znode.Op{made("/demo"), made("/demo/locks"), made("/b"), made("/c")}}}}},
	}
	golden := catalogtest.Golden(t)
	cases = append(append(append(cases, golden...), catalogtest.Extreme(t)...), golden...)
	for _, c := range cases {
		if p, err := c.Subject.Parse(); err != nil || p.Request {
			continue // no view looks at requests
		}
		if _, err := b.Log().Append(t.Context(), bus.Draft{Subject: c.Subject, Event: c.Event, Expect: bus.Any}); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
	}
	t.Logf("%d events", len(cases))
	return b
}

// Whatever was accepted is folded by every view without a failure. Its snapshot is
// restored to the same state, and the archive, a replay to any sequence and the replay of
// one namespace give the same.
func TestWhatWasAcceptedIsFoldedEverywhere(t *testing.T) {
	if raceDetector {
		t.Skip("hundreds of events of half a megabyte, on one goroutine: make test runs it without the race detector")
	}
	b := accepted(t)
	last, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Write(t.Context(), b.Log(), last, archive.WriterOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range registry.Names() {
		t.Run(name, func(t *testing.T) {
			state, whole, err := registry.Replay(t.Context(), b.Log(), name, "", follow.End)
			if err != nil {
				t.Fatal(err)
			}
			var in struct{ Skipped map[string]uint64 }
			if err := json.Unmarshal(state, &in); err != nil {
				t.Fatal(err)
			}
			for reason, n := range in.Skipped {
				if reason != "path" { // names that make no path are shown nowhere, and are no failure
					t.Errorf("%d events were skipped as %q", n, reason)
				}
			}
			if _, hash, err := registry.Replay(t.Context(), a.Log(b.Log()), name, "", follow.End); err != nil || hash != whole {
				t.Errorf("out of the archive: %s, want %s, %v", hash, whole, err)
			}
			_, past, err := registry.Replay(t.Context(), b.Log(), name, "demo", last/2)
			if err != nil {
				t.Fatal(err)
			}
			if _, got, err := registry.Replay(t.Context(), a.Log(b.Log()), name, "demo", last/2); err != nil || got != past {
				t.Errorf("at %d out of the archive: %s, want %s, %v", last/2, got, past, err)
			}
		})
	}
	t.Run("node sizes", func(t *testing.T) { nodeSizes(t, b) })
	restored(t, b, registry.Catalog)
	restored(t, b, registry.Plan)
	restored(t, b, registry.Fleet)
	restored(t, b, registry.Layout)
	restored(t, b, registry.Lineage)
	restored(t, b, registry.Servers)
	restored(t, b, registry.Znode)
}

// restored checks that a follower comes back from its snapshot as it was.
func restored[S any](t *testing.T, b bus.Bus, v follow.View[S]) {
	t.Helper()
	dir := t.TempDir()
	var hashes []string
	for _, want := range []string{"", "snapshot restored"} {
		said := &heard{}
		f := follow.New(b.Log(), v, follow.Options{SnapshotDir: dir, Log: slog.New(said)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		<-f.Ready()
		_, hash := f.Hash()
		hashes = append(hashes, hash)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(said.lines, "; "); got != want {
			t.Errorf("view %s said %q, want %q", v.Name, got, want)
		}
	}
	if hashes[0] != hashes[1] || strings.HasPrefix(hashes[0], "unhashable") {
		t.Errorf("view %s: %s before and %s after its snapshot", v.Name, hashes[0], hashes[1])
	}
}

// heard keeps the messages of a log.
type heard struct{ lines []string }

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) Handle(_ context.Context, r slog.Record) error {
	h.lines = append(h.lines, r.Message)
	return nil
}
func (h *heard) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *heard) WithGroup(string) slog.Handler      { return h }

// nodeSizes checks that no node is larger than Apache ZooKeeper takes, because the tree is
// mirrored into one.
func nodeSizes(t *testing.T, b bus.Bus) {
	const most = 0xfffff - 64<<10 // jute.maxbuffer, less what stands around one node's data
	sizes := map[string]int{}
	s := view.New()
	last, err := b.Log().Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = b.Log().Follow(t.Context(), 1, last, func(r events.Recorded) error {
		s = view.Fold(s, r)
		for _, c := range s.Effects().Changes {
			if data, _, ok := s.Get(c.Path); ok && len(data)+len(c.Path) > 700<<10 {
				folder := strings.SplitN(c.Path, "/", 4)[2]
				sizes[folder] = max(sizes[folder], len(data)+len(c.Path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(sizes) == 0 || slices.Max(slices.Collect(maps.Values(sizes))) > most {
		t.Errorf("the largest nodes by folder: %v, at most %d bytes are allowed, and 700 KiB are reached", sizes, most)
	}
}

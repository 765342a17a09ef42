package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// sends answers in a source's place where a piece of the large file is asked for.
func sends(answer func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isFile(r, ".tfrecord") {
			return false
		}
		answer(w, r)
		return true
	}
}

// lists has a source list what lies in dir, changed.
func lists(t *testing.T, dir string, change func(*Listing)) func(http.ResponseWriter, *http.Request) bool {
	d, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := list(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	change(&l)
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == listingPath {
			_ = json.NewEncoder(w).Encode(l)
		}
		return r.URL.Path == listingPath
	}
}

// partial answers a range with that text, as if it were all of it.
func partial(t *testing.T, text func(size int) []byte) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		from, to := rangeOf(t, r)
		w.Header().Set("Content-Length", strconv.FormatInt(to-from+1, 10))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(text(int(to - from + 1)))
	}
}

// TestFetchSurvives: of two sources one works as it should, and that is enough.
func TestFetchSurvives(t *testing.T) {
	dir, identity := export(t, large)
	other, _ := export(t, 10)
	var died atomic.Int64
	for _, tc := range []struct {
		name string
		bad  func(w http.ResponseWriter, r *http.Request) bool
		want string // fault that is counted whoever is faster; "": it depends
	}{
		{"sends other bytes", sends(partial(t, func(size int) []byte { return bytes.Repeat([]byte{7}, size) })), ""},
		{"has another export", lists(t, other, func(*Listing) {}), corrupt},
		{"lists what is not in its manifest", lists(t, dir, func(l *Listing) {
			for i := range l.Files {
				l.Files[i].CRC32C++
			}
		}), corrupt},
		{"lists less than its manifest", lists(t, dir, func(l *Listing) {
			l.Files = slices.DeleteFunc(l.Files, func(f File) bool { return strings.HasSuffix(f.Name, ".tfrecord") })
		}), corrupt},
		{"lists more than is taken", lists(t, dir, func(l *Listing) { l.Files[0].Size = 1 << 50 }), corrupt},
		{"lists what lies elsewhere", lists(t, dir, func(l *Listing) { l.Files[0].Name = "../a" }), corrupt},
		{"dies", func(http.ResponseWriter, *http.Request) bool {
			if died.Add(1) < 6 {
				return false
			}
			panic(http.ErrAbortHandler)
		}, ""},
		{"hangs", sends(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), ""},
		{"breaks off", sends(partial(t, func(int) []byte { return []byte("half") })), ""},
		{"ignores ranges", sends(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "all of it") }), ""},
		{"sends others elsewhere", sends(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}), ""},
		{"has lost it", sends(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "gone", http.StatusNotFound) }), ""},
	} {
		t.Run("the other "+tc.name, func(t *testing.T) {
			c, into := client(t), root(t)
			offer, err := c.Find(t.Context(), ask, []string{identity}, []Source{host(t, "bad", dir, tc.bad), host(t, "good", dir, nil)})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Fetch(t.Context(), into, offer); err != nil {
				t.Fatal(err)
			}
			same(t, dir, into.Name())
			if tc.want != "" && c.fault(tc.want) == 0 {
				t.Errorf("no fault %q was counted", tc.want)
			}
		})
	}
}

func rangeOf(t *testing.T, r *http.Request) (from, to int64) {
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
		t.Errorf("%q is no range", r.Header.Get("Range"))
	}
	return from, to
}

// TestFetchFails: where no source works, it ends with what each of them did, and what came stays.
func TestFetchFails(t *testing.T) {
	dir, identity := export(t, large)
	bad := host(t, "bad", dir, func(w http.ResponseWriter, r *http.Request) bool {
		if isFile(r, ".tfrecord") {
			http.Error(w, "it cannot be read here", http.StatusInternalServerError)
			return true
		}
		return false
	})
	c, into := client(t), root(t)
	offer, err := c.Find(t.Context(), ask, nil, []Source{bad})
	if err != nil || offer.Export != identity {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), into, offer); err == nil || !strings.Contains(err.Error(), "no source is left") || !strings.Contains(err.Error(), "cannot be read here") {
		t.Errorf("fetch: %v", err)
	}
	if _, err := into.Stat("assets/vocabulary.txt"); err != nil {
		t.Error(err)
	}
	for _, a := range []Ask{{Model: "m", Sub: "ps_0", Version: 8, Dir: ask.Dir}, {Model: "x", Sub: "ps_0", Version: 7, Dir: ask.Dir}} {
		if _, err := c.Find(t.Context(), a, nil, []Source{bad}); !errors.Is(err, ErrNotHere) {
			t.Errorf("%v: %v", a, err)
		}
	}
	gone := Source{"gone", "127.0.0.1:1"}
	if _, err := c.Find(t.Context(), ask, nil, []Source{gone}); err == nil || !strings.Contains(err.Error(), "gone (127.0.0.1:1)") {
		t.Errorf("of a host that is gone: %v", err)
	}
	if _, err := c.Find(t.Context(), ask, []string{strings.Repeat("ab", 32)}, []Source{bad}); err == nil || !strings.Contains(err.Error(), "what was exported is abababab") {
		t.Errorf("of another export: %v", err)
	}
}

// TestOfferOfMost: without a fact about what was exported, what most hosts have is it.
func TestOfferOfMost(t *testing.T) {
	dir, identity := export(t, 10)
	other, _ := export(t, 11)
	c := client(t)
	offer, err := c.Find(t.Context(), ask, nil, []Source{host(t, "a", other, nil), host(t, "b", dir, nil), host(t, "c", dir, nil)})
	if err != nil || offer.Export != identity || len(offer.Sources) != 2 {
		t.Errorf("found %s at %v, %v", offer.Export, offer.Sources, err)
	}
}

// TestStalls: a source that stops sending is given up after a while, whatever the connection says.
func TestStalls(t *testing.T) {
	dir, _ := export(t, 10)
	c, into := client(t, func(conf *Config) { conf.Stall = 50 * time.Millisecond }), root(t)
	hung := host(t, "hung", dir, func(w http.ResponseWriter, r *http.Request) bool {
		if isFile(r, ".tfrecord") {
			<-r.Context().Done()
			return true
		}
		return false
	})
	offer, err := c.Find(t.Context(), ask, nil, []Source{hung})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), into, offer); err == nil || !strings.Contains(err.Error(), "nothing came for 50ms") {
		t.Errorf("fetch: %v", err)
	}
}

// TestBusy: a source that sends to enough others is waited for, at its manifest and at each piece, and counts as no
// broken one; but not for longer than a piece may take.
func TestBusy(t *testing.T) {
	dir, identity := export(t, large)
	const each = 2 * maxMisses * perSource
	var mu sync.Mutex
	refused := map[string]int{}
	busy := func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		name := r.URL.Query().Get("name")
		if r.URL.Path != filePath || refused[name] >= each {
			return false
		}
		refused[name]++
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	c, into := client(t), root(t)
	offer, err := c.Find(t.Context(), ask, []string{identity}, []Source{host(t, "a", dir, busy)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), into, offer); err != nil {
		t.Fatal(err)
	}
	same(t, dir, into.Name())
	if n := c.fault(unreachable); n > 0 || refused[checkpoint.ManifestName] != each {
		t.Errorf("%d faults; refused %v", n, refused)
	}

	c = client(t, func(conf *Config) { conf.PerPiece = 50 * time.Millisecond })
	always := host(t, "b", dir, sends(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	if offer, err = c.Find(t.Context(), ask, nil, []Source{always}); err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), root(t), offer); err == nil || !strings.Contains(err.Error(), "took longer than 50ms") || c.fault(unreachable) == 0 {
		t.Errorf("of a host that stays busy: %v", err)
	}
}

package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var ask = Ask{Model: "m", Sub: "ps_0", Version: 7, Dir: "/srv/exported_models"}

// export writes a folder with a manifest, of a shard whose one variable has that many values, with
// assets that the manifest does not name.
func export(t *testing.T, values int) (dir, identity string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "7")
	v := make([]float32, values)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range v {
		v[i] = r.Float32()
	}
	s := &checkpoint.Shard{Manifest: checkpoint.Manifest{Job: "j", Checkpoint: 7, Shards: 1},
		Dense: map[string]checkpoint.Variable{"v": {Shape: []uint32{uint32(values)}, Values: v}}}
	if _, err := checkpoint.CreateShard(dir, s); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"assets/vocabulary.txt": "a\nb\n", "assets/deep/er/none": "", "odd \"name\" + %2F ?.txt": "x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	identity, _, err := checkpoint.Written(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, identity
}

// host serves dir as every Ask; change may answer in its place, and says whether it did.
func host(t *testing.T, name, dir string, change func(w http.ResponseWriter, r *http.Request) bool) Source {
	t.Helper()
	s := &Server{Open: func(a Ask) (*os.Root, error) {
		if a != ask {
			return nil, ErrNotHere
		}
		return os.OpenRoot(dir)
	}, Log: slog.New(slog.DiscardHandler), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"})}
	h := s.Handler()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change == nil || !change(w, r) {
			h.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	return Source{name, srv.Listener.Addr().String()}
}

type world struct {
	*Client
	faults *prometheus.CounterVec
	sent   map[string]int64 // bytes of pieces that were used, by host
	mu     sync.Mutex
}

func client(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{sent: map[string]int64{}, faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "faults"}, []string{"reason"})}
	conf := Config{Log: slog.New(slog.DiscardHandler), Faults: w.faults, Fetched: prometheus.NewCounter(prometheus.CounterOpts{Name: "fetched"}), Pause: time.Millisecond, Piece: pieceSize,
		Gave: func(s Source, n int64, _ int) { w.mu.Lock(); defer w.mu.Unlock(); w.sent[s.Host] += n }}
	for _, f := range change {
		f(&conf)
	}
	w.Client = NewClient(conf)
	t.Cleanup(w.Close)
	return w
}

func (w *world) fault(reason string) int {
	return int(testutil.ToFloat64(w.faults.WithLabelValues(reason)))
}

func root(t *testing.T) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// same fails unless both folders hold the same files with the same bytes.
func same(t *testing.T, want, got string) {
	t.Helper()
	read := func(dir string) string {
		var out strings.Builder
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			rel, _ := filepath.Rel(dir, path)
			fmt.Fprintf(&out, "%s %d %x\n", rel, len(text), text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if read(want) != read(got) {
		t.Errorf("%s does not hold what %s does", got, want)
	}
}

// isFile says that a request is for a piece of the file with that ending.
func isFile(r *http.Request, suffix string) bool {
	return r.URL.Path == filePath && strings.HasSuffix(r.URL.Query().Get("name"), suffix)
}

const (
	pieceSize = 4 << 10
	large     = 12*pieceSize/4 + 100 // values of a variable: some twelve pieces
)

// TestFetch has a folder from three hosts, all of which send a part of it.
func TestFetch(t *testing.T) {
	dir, identity := export(t, large)
	var asked sync.WaitGroup // each host is asked for the large file before any answers
	asked.Add(3)
	sources := make([]Source, 3)
	for i := range sources {
		var once sync.Once
		sources[i] = host(t, fmt.Sprint("host-", i), dir, func(_ http.ResponseWriter, r *http.Request) bool {
			if isFile(r, ".tfrecord") {
				once.Do(asked.Done)
				asked.Wait()
			}
			return false
		})
	}
	c, into := client(t), root(t)
	offer, err := c.Find(t.Context(), ask, []string{identity}, sources)
	if err != nil || len(offer.Sources) != 3 || offer.Export != identity {
		t.Fatalf("found %d sources of %s: %v", len(offer.Sources), offer.Export, err)
	}
	if err := c.Fetch(t.Context(), into, offer); err != nil {
		t.Fatal(err)
	}
	same(t, dir, into.Name())
	if err := checkpoint.VerifyFiles(t.Context(), into.FS()); err != nil {
		t.Error(err)
	}
	if c.sent["host-0"] == 0 || c.sent["host-1"] == 0 || c.sent["host-2"] == 0 || c.fault(corrupt)+c.fault(unreachable) > 0 {
		t.Errorf("sent by host: %v", c.sent)
	}
}

// TestFetchGoesOn: a fetch that was stopped in the middle, with a journal whose end is torn and a
// piece that the disk lost, asks for what is missing alone.
func TestFetchGoesOn(t *testing.T) {
	dir, identity := export(t, large)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var given atomic.Int64
	first := client(t, func(conf *Config) {
		conf.Gave = func(_ Source, n int64, _ int) {
			if n == pieceSize && given.Add(1) == 4 {
				stop()
			}
		}
	})
	into := root(t)
	offer, err := first.Find(ctx, ask, []string{identity}, []Source{host(t, "a", dir, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Fetch(ctx, into, offer); !errors.Is(err, context.Canceled) {
		t.Fatalf("a fetch that was stopped: %v", err)
	}
	text, err := into.ReadFile(journalName)
	if err != nil {
		t.Fatal(err)
	}
	records := decodeJournal(text)
	if len(records) < 4 {
		t.Fatalf("%d pieces are noted", len(records))
	}
	lost := records[len(records)-1]
	f, err := into.OpenFile(filepath.FromSlash(offer.Files[lost.file].Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1, 2, 3, 4, 5, 6, 7}, int64(lost.piece)*pieceSize); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), into.WriteFile(journalName, append(text, 9, 9, 9), 0o644)); err != nil {
		t.Fatal(err)
	}
	again := client(t)
	if err := again.Fetch(t.Context(), into, offer); err != nil {
		t.Fatal(err)
	}
	same(t, dir, into.Name())
	have := int64(0)
	for _, r := range records[:len(records)-1] {
		have += min(pieceSize, offer.Files[r.file].Size-int64(r.piece)*pieceSize)
	}
	if want := int64(offer.Size()) - have; again.sent["a"] != want {
		t.Errorf("%d bytes were fetched again, %d were missing", again.sent["a"], want)
	}
}

const victim = "MONOLITH_FETCH_VICTIM" // <address> <folder>, of the process that is killed

// TestFetchKilled: a process that fetches is killed with -9 in the middle; the next one has what
// was written of it and fetches the rest.
func TestFetchKilled(t *testing.T) {
	if args := os.Getenv(victim); args != "" {
		address, folder, _ := strings.Cut(args, " ")
		into, err := os.OpenRoot(folder)
		if err != nil {
			t.Fatal(err)
		}
		c := client(t)
		offer, err := c.Find(t.Context(), ask, nil, []Source{{"a", address}})
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal("it was to be killed, and it ended: ", c.Fetch(t.Context(), into, offer))
	}
	dir, identity := export(t, large)
	var asked atomic.Int64
	enough := make(chan struct{})
	source := host(t, "a", dir, func(_ http.ResponseWriter, r *http.Request) bool {
		if !isFile(r, ".tfrecord") {
			return false
		}
		if n := asked.Add(1); n == 6 || n == 7 { // both of its workers wait here
			if n == 7 {
				close(enough)
			}
			<-r.Context().Done()
			return true
		}
		return false
	})
	into := root(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestFetchKilled$")
	cmd.Env = append(os.Environ(), victim+"="+source.Address+" "+into.Name())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-enough
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	text, err := into.ReadFile(journalName)
	if err != nil {
		t.Fatal(err)
	}
	pieces := 0
	for _, r := range decodeJournal(text) {
		if r.piece != forgotten {
			pieces++
		}
	}
	c := client(t)
	offer, err := c.Find(t.Context(), ask, []string{identity}, []Source{source})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), into, offer); err != nil {
		t.Fatal(err)
	}
	same(t, dir, into.Name())
	if most := int64(offer.Size()) - 3*pieceSize; pieces < 3 || c.sent["a"] > most {
		t.Errorf("%d pieces were noted before the kill, %d of %d bytes fetched behind it", pieces, c.sent["a"], offer.Size())
	}
}

// TestNothingElseIsHandedOut: a request leads nowhere but into the folder that it may read.
func TestNothingElseIsHandedOut(t *testing.T) {
	dir, _ := export(t, 10)
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "secret"), []byte("the hidden text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := host(t, "a", dir, nil)
	for _, name := range []string{"../secret", "/etc/passwd", "link", "assets/../../secret", "assets", "", ".", "assets//vocabulary.txt", "nothing", ".fetch-journal", "..\\secret"} {
		q := ask.query()
		q.Set("name", name)
		resp, err := http.Get("http://" + s.Address + filePath + "?" + q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK || bytes.Contains(text, []byte("hidden text")) || bytes.Contains(text, []byte(dir)) {
			t.Errorf("%q: %s %s", name, resp.Status, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, err := client(t).Find(t.Context(), ask, nil, []Source{s}); err == nil || !strings.Contains(err.Error(), "cannot be read here") {
		t.Errorf("a folder with a link out of it: %v", err)
	}
}

// TestKeys: hosts of another authority are neither answered nor believed.
func TestKeys(t *testing.T) {
	dir, identity := export(t, 10)
	ours, theirs := certs.NewAuthority(t), certs.NewAuthority(t)
	load := func(f mtls.Files) *world {
		conf, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return client(t, func(c *Config) { c.TLS = conf })
	}
	keys, err := ours.Issue("host-a").Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Open: func(Ask) (*os.Root, error) { return os.OpenRoot(dir) }, Log: slog.New(slog.DiscardHandler), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"})}
	srv := httptest.NewUnstartedServer(s.Handler())
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.Listener = mtls.Listen(srv.Listener, keys)
	srv.Start()
	t.Cleanup(srv.Close)
	at := []Source{{"a", srv.Listener.Addr().String()}}
	if o, err := load(ours.Issue("host-b")).Find(t.Context(), ask, nil, at); err != nil || o.Export != identity {
		t.Errorf("%s, %v", o.Export, err)
	}
	if _, err := load(theirs.Issue("stranger")).Find(t.Context(), ask, nil, at); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := client(t).Find(t.Context(), ask, nil, at); err == nil {
		t.Error("a host without keys was answered")
	}
}

func TestListingIsHeldToItsBounds(t *testing.T) {
	ok := `{"files":[{"name":"a","size":1,"crc32c":2},{"name":"b/c","size":0,"crc32c":0}]}`
	if l, err := decodeListing(strings.NewReader(ok)); err != nil || l.size() != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	file := func(name string) string { return fmt.Sprintf(`{"files":[{"name":%q,"size":1}]}`, name) }
	for _, bad := range []string{
		"", "[]", "{}", `{"files":[]}`, ok + "{}", `{"export":"x","files":[{"name":"a"}]}`, `{"export":"abcd","files":[{"name":"a"}]}`,
		file(""), file("/a"), file("../a"), file("a/../b"), file("a//b"), file("."), file(".."), file(`a\b`), file("a\x00b"), file(".fetch-journal"), file("a/"),
		file(strings.Repeat("a/", maxDepth) + "a"), file(strings.Repeat("a", maxName+1)),
		`{"files":[{"name":"a","size":-1}]}`, `{"files":[{"name":"a","size":0,"crc32c":1}]}`,
		`{"files":[{"name":"a","size":9223372036854775807},{"name":"b","size":1}]}`,
		`{"files":[{"name":"a","size":9223372036854775807}]}`, `{"files":[{"name":"a","size":1125899906842624}]}`,
		`{"files":[{"name":"a","size":4398046511104},{"name":"b","size":1}]}`,
		`{"files":[{"name":"b"},{"name":"a"}]}`, `{"files":[{"name":"a"},{"name":"a"}]}`, `{"files":[{"name":"a"},{"name":"a/b"}]}`,
		`{"files":[` + strings.Repeat(" ", maxListing) + `]}`,
	} {
		if l, err := decodeListing(strings.NewReader(bad)); err == nil {
			t.Errorf("%.100s was taken: %+v", bad, l)
		}
	}
}

// FuzzListing: whatever another host lists, what is taken names files below a folder alone, each
// once, and comes back as it was.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`{"files":[{"name":"a","size":1,"crc32c":2},{"name":"b/c","size":0,"crc32c":0}]}`))
	f.Add([]byte(`{"export":"` + strings.Repeat("0f", 32) + `","files":[{"name":"manifest.json","size":10,"crc32c":2}]}`))
	f.Add([]byte(`{"files":[{"name":"../a"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decodeListing(bytes.NewReader(data))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, f := range l.Files {
			if !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Size < 0 || seen[f.Name] {
				t.Fatalf("%+v was taken", f)
			}
			seen[f.Name] = true
		}
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeListing(bytes.NewReader(text))
		if err != nil || again.digest() != l.digest() {
			t.Fatalf("%s comes back as %+v, %v", text, again, err)
		}
	})
}

// FuzzJournal: of a torn or damaged journal the whole records before the damage count.
func FuzzJournal(f *testing.F) {
	f.Add([]byte{}, uint8(3), uint16(17))
	f.Add([]byte("anything"), uint8(0), uint16(0))
	f.Fuzz(func(t *testing.T, tail []byte, n uint8, cut uint16) {
		var text []byte
		for i := range uint32(n) {
			text = record{i, i * 7, i * 13}.append(text)
		}
		text = append(text, tail...)
		text = text[:min(len(text), int(cut))]
		got := decodeJournal(text)
		if want := min(int(n), len(text)/recordSize); len(got) < want {
			t.Fatalf("%d records of %d whole ones", len(got), want)
		}
		for i, r := range got[:min(len(got), int(n))] {
			if r != (record{uint32(i), uint32(i) * 7, uint32(i) * 13}) {
				t.Fatalf("record %d is %+v", i, r)
			}
		}
	})
}

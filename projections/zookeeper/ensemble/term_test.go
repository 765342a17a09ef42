package ensemble

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// ofTerm is a term that knows what the state says, and reads where w does.
func ofTerm(t *testing.T, p syncState, w *readConn) *term {
	t.Helper()
	return &term{Mirror: idle(t, Config{BZID: "demo"}), syncState: p, w: w, later: map[string]uint64{}, retry: map[string]int64{}}
}

// An access list goes with an import where somebody else has made the node; of a node that the
// mirror made, or that both sides have known, the data alone are foreign.
func TestWhichImportsBringAList(t *testing.T) {
	acl := everybody(1)
	for _, tc := range []struct {
		name  string
		o     *localNode
		czxid int64
		want  bool
	}{
		{"made there, not here", nil, 200, true},
		{"known of old, not here any more", nil, 50, true},
		{"made anew there", ours("a", 9), 200, true},
		{"known of old", ours("a", 9), 50, false},
		{"known up to just there", ours("a", 9), 100, false},
		{"made just behind it", ours("a", 9), 101, true},
		{"made by the mirror", ours("a", 9), 145, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := marked(10, 100)
			p.handled = map[string]int64{}
			w := work{term: ofTerm(t, p, nil)}
			w.judge("/demo/p", tc.o, &remoteNode{data: []byte("b"), czxid: tc.czxid, mzxid: 200, acl: acl, aversion: 3})
			if len(w.imports) != 1 {
				t.Fatalf("%d imports", len(w.imports))
			}
			if m := w.imports[0].message; (len(m.GetAcl()) == 1 && m.GetAversion() == 3) != tc.want || (m.GetAcl() == nil && m.GetAversion() == 0) == tc.want {
				t.Errorf("it brings %v of %d", m.GetAcl(), m.GetAversion())
			}
		})
	}
	t.Run("not read", func(t *testing.T) {
		p := marked(10, 100)
		p.handled = map[string]int64{}
		w := work{term: ofTerm(t, p, nil)}
		w.judge("/demo/p", nil, &remoteNode{data: []byte("b"), czxid: 200, mzxid: 200})
		if _, later := w.later["/demo/p"]; len(w.imports) != 0 || w.retry["/demo/p"] != 200 || !later {
			t.Errorf("%d imports, again %v, later %v", len(w.imports), w.retry, w.later)
		}
	})
}

// Lists are read of those nodes alone whose decision needs them.
func TestWhichListsAreRead(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	w := reads(t, scripted(t, session7, func(q wire.RequestHeader, path string) []byte {
		mu.Lock()
		asked = append(asked, path)
		mu.Unlock()
		return answered(q.Xid, wire.NoNode)
	}))
	known := &localNode{aversion: 2}
	cases := []struct {
		path  string
		o     *localNode
		t     *remoteNode
		asked bool
		whole bool // while everything is compared
	}{
		{"/gone", known, nil, false, false},
		{"/hidden", known, &remoteNode{opaque: true, czxid: 200, mzxid: 200, aversion: 9}, false, false},
		{"/theirs", nil, &remoteNode{czxid: 50, mzxid: 101}, true, true},
		{"/removed-here", nil, &remoteNode{czxid: 50, mzxid: 100}, false, false},
		{"/the-same", known, &remoteNode{czxid: 50, mzxid: 90, aversion: 2}, false, true},
		{"/written-there", known, &remoteNode{czxid: 50, mzxid: 200, aversion: 2}, false, true},
		{"/listed-there", known, &remoteNode{czxid: 50, mzxid: 90, aversion: 3}, true, true},
		{"/made-anew", known, &remoteNode{czxid: 200, mzxid: 200, aversion: 2}, true, true},
		{"/made-by-us", known, &remoteNode{czxid: 145, mzxid: 145, aversion: 2}, false, true},
	}
	for _, whole := range []bool{false, true} {
		r := ofTerm(t, marked(10, 100), w)
		r.whole = whole
		var paths, want []string
		var us []*localNode
		var them []*remoteNode
		for _, tc := range cases {
			paths, us, them = append(paths, tc.path), append(us, tc.o), append(them, tc.t)
			if tc.asked && !whole || tc.whole && whole {
				want = append(want, tc.path)
			}
		}
		mu.Lock()
		asked = nil
		mu.Unlock()
		if err := r.lists(t.Context(), paths, us, them); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		if !slices.Equal(asked, want) {
			t.Errorf("whole %v: %q, want %q", whole, asked, want)
		}
		mu.Unlock()
	}
}

// A mirror lags by the events that it has not shown over there, while something is to be compared.
func TestLag(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	tree := follow.New(b.Log(), registry.Znode, follow.Options{})
	m, err := New(Config{BZID: "demo"}, tree, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		_, err := b.Log().Append(t.Context(), bus.Draft{Subject: events.Join("demo", "training", "x"), Expect: bus.Any, Header: events.Header{ID: fmt.Sprint(i), Source: "test"},
			Event: &training.Event{Body: &training.Event_MetricReported{MetricReported: &training.MetricReported{Name: "x", Samples: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan error, 1)
	ctx := t.Context()
	go func() { ran <- tree.Run(ctx) }()
	t.Cleanup(func() { <-ran })
	if err := tree.Wait(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	lags := func(when string, want uint64) {
		t.Helper()
		if got := m.Status().Lag; got != want {
			t.Errorf("%s: %d events behind, want %d", when, got, want)
		}
	}
	lags("with nothing to compare", 0)
	m.touch("/demo/a")
	lags("with a path to compare", 5)
	m.synced.Store(3)
	lags("with three shown", 2)
	m.take()
	lags("with all compared", 0)
	m.touchAll()
	lags("with everything to compare", 2)
	m.synced.Store(6)
	lags("with more shown than folded", 0)
}

// That a node cannot be kept the same is said at the second attempt, once, and how that is mended.
func TestWhenIsSaidWhatIsStuck(t *testing.T) {
	m := idle(t, Config{BZID: "demo"})
	var out bytes.Buffer
	m.logger = slog.New(slog.NewTextHandler(&out, nil))
	for n, want := range []int{0, 1, 1, 1} {
		m.stick("/demo/a", "set", errors.New("too large"))
		if got := strings.Count(out.String(), "cannot be kept the same"); got != want {
			t.Errorf("said %d times at attempt %d, want %d", got, n+1, want)
		}
	}
	if s := out.String(); !strings.Contains(s, "see what stands in its way") || strings.Contains(s, "--zk-auth-file") {
		t.Error(s)
	}
	out.Reset()
	for range 2 {
		m.stick("/demo/b", "set", zk.ErrNoAuth)
	}
	if s := out.String(); !strings.Contains(s, "--zk-auth-file") {
		t.Error(s)
	}
}

// The bytes of a write are those of its paths and data, by which multis are filled.
func TestSizesOfWrites(t *testing.T) {
	w := work{term: ofTerm(t, marked(10, 100), nil)}
	o, x := ours("data", 9), theirs("other", 90, 0)
	for _, v := range []action{create, set, replace, remove} {
		w.note("/p", v, o, x)
	}
	var got []string
	for _, op := range slices.Concat(w.takeovers, w.removals, w.puts) {
		got = append(got, fmt.Sprintf("%v %d of %d", op.v, op.size, op.seq))
	}
	if want := []string{"replace 8 of 9", "remove 2 of 0", "create 6 of 9", "set 6 of 9"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A multi takes as many writes as its bounds allow, and one that is beyond them alone.
func TestOneMulti(t *testing.T) {
	of := func(sizes ...int) (all []op) {
		for _, n := range sizes {
			all = append(all, op{size: n})
		}
		return all
	}
	for _, tc := range []struct {
		all  []op
		want int
	}{
		{nil, 0}, {of(1), 1}, {of(multiBytes+1, 1), 1}, {of(1, multiBytes+1), 1}, {of(multiBytes-1, 1, 1), 2}, {of(multiBytes, 0, 1), 2}, {of(1, multiBytes), 1},
		{make([]op, multiOps-1), multiOps - 1}, {make([]op, multiOps), multiOps}, {make([]op, multiOps+1), multiOps},
	} {
		if got := oneMulti(tc.all); got != tc.want {
			t.Errorf("%d of %d, want %d", got, len(tc.all), tc.want)
		}
	}
}

// Data and list of one node are put right together, where the node stays; a node that is to be
// imported, made anew or removed waits with its list. Who agrees in both is no longer stuck.
func TestWhatIsDoneTogether(t *testing.T) {
	lists := func(o *localNode, x *remoteNode, here, there int32) (*localNode, *remoteNode) {
		o.acl, o.aversion, x.acl, x.aversion = everybody(1), here, everybody(3), there
		return o, x
	}
	for _, tc := range []struct {
		name                     string
		o                        *localNode
		t                        *remoteNode
		here, there              int32
		puts, relists, imports   int
		takeovers, agreed, drift int
	}{
		{name: "nothing to do", o: ours("a", 9), t: theirs("a", 90, 0), agreed: 1},
		{name: "data set here", o: ours("b", 11), t: theirs("a", 90, 0), puts: 1},
		{name: "the list set here", o: ours("a", 9), t: theirs("a", 90, 0), here: 2, there: 1, relists: 1},
		{name: "both set here", o: ours("b", 11), t: theirs("a", 90, 0), here: 2, there: 1, puts: 1, relists: 1},
		{name: "data set there, the list here", o: ours("a", 9), t: theirs("b", 200, 0), here: 2, there: 1, imports: 1},
		{name: "the list set there", o: ours("a", 9), t: theirs("a", 90, 0), here: 1, there: 2, imports: 1},
		{name: "data set here, the list there", o: ours("b", 11), t: theirs("a", 90, 0), here: 1, there: 2, puts: 1, imports: 1},
		{name: "of another kind", o: heldOurs("a", 9), t: theirs("a", 90, oldSession), here: 2, there: 1, takeovers: 1},
		{name: "held, both set there", o: heldOurs("a", 9), t: theirs("b", 200, mirrorSession), here: 1, there: 2, puts: 1, relists: 1, drift: 1},
		{name: "held, the list set there", o: heldOurs("a", 9), t: theirs("a", 90, mirrorSession), here: 1, there: 2, relists: 1, drift: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := marked(10, 100)
			p.handled, p.refused = map[string]int64{}, map[string]bool{"/demo/p": true}
			w := work{term: ofTerm(t, p, nil)}
			o, x := tc.o, tc.t
			if tc.here != 0 {
				o, x = lists(o, x, tc.here, tc.there)
			}
			w.judge("/demo/p", o, x)
			got := []int{len(w.puts), len(w.relists), len(w.imports), len(w.takeovers), len(w.agreed), len(w.drifts)}
			if want := []int{tc.puts, tc.relists, tc.imports, tc.takeovers, tc.agreed, tc.drift}; !slices.Equal(got, want) {
				t.Errorf("puts, lists, imports, takeovers, agreed, drifts: %v, want %v", got, want)
			}
			if handled := w.handled["/demo/p"]; (handled == x.mzxid) != (x.mzxid > 100) || w.refused["/demo/p"] {
				t.Errorf("handled up to %d, refused %v", handled, w.refused)
			}
		})
	}
}

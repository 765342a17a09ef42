package ensemble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Sessions over there: the mirror's own, an agent's, and that of a predecessor.
const mirrorSession, agentSession, oldSession = 1, 2, 3

// marked is what a mirror knows that has come so far on both sides.
func marked(seq uint64, zxid int64) syncState {
	return syncState{cursor: cursor{Seq: seq, Zxid: zxid, Own: [][2]int64{{140, 150}}}, session: mirrorSession, bridge: true}
}

// sawThere is a mark that another path holds back, while the node as it was written here was seen there.
func sawThere(written uint64) syncState {
	p := marked(10, 100)
	p.there = map[string]uint64{"/p": written}
	return p
}

// alone mirrors and imports nothing.
func alone() syncState {
	p := marked(10, 100)
	p.bridge = false
	return p
}

// told has handled the write at zxid 200 before.
func told() syncState {
	p := marked(10, 100)
	p.handled = map[string]int64{"/p": 200}
	return p
}

// refusedOnce was refused the removal.
func refusedOnce() syncState {
	p := marked(10, 100)
	p.refused = map[string]bool{"/p": true}
	return p
}

func ours(data string, seq uint64) *localNode {
	return &localNode{data: []byte(data), created: 5, written: seq}
}

func heldOurs(data string, seq uint64) *localNode {
	o := ours(data, seq)
	o.held = true
	return o
}

func importedOurs(data string, seq uint64, owner, mzxid int64, last bool) *localNode {
	o := ours(data, seq)
	o.external, o.foreign, o.imported, o.asImported = true, owner, mzxid, last
	return o
}

func withChild(o *localNode) *localNode {
	o.children = 1
	return o
}

func theirs(data string, mzxid, owner int64) *remoteNode {
	return &remoteNode{data: []byte(data), czxid: 50, mzxid: mzxid, owner: owner}
}

// decision is one rule of who wins.
type decision struct {
	name  string
	o     *localNode
	t     *remoteNode
	p     syncState
	want  action
	drift bool
}

var decisionsOfWrites = []decision{
	{"nothing anywhere", nil, nil, marked(10, 100), agree, false},
	{"the same", ours("a", 9), theirs("a", 90, 0), marked(10, 100), agree, false},
	{"the same, written by somebody", ours("a", 9), theirs("a", 200, 0), marked(10, 100), agree, false},
	{"made here", ours("a", 11), nil, marked(0, 0), create, false},
	{"made here, new", &localNode{created: 11, written: 11}, nil, marked(10, 100), create, false},
	{"written here", ours("b", 11), theirs("a", 90, 0), marked(10, 100), set, false},
	{"deleted here", nil, theirs("a", 90, 0), marked(10, 100), remove, false},
	{"deleted here, an echo", nil, theirs("a", 150, 0), marked(10, 100), remove, false},
	{"made there", nil, theirs("a", 200, 0), marked(10, 100), importWrite, false},
	{"made there by an agent", nil, theirs("a", 200, agentSession), marked(10, 100), importWrite, false},
	{"made there and refused", nil, theirs("a", 200, 0), told(), remove, false},
	{"written there", ours("a", 9), theirs("b", 200, 0), marked(10, 100), importWrite, false},
	{"written there and refused", ours("a", 9), theirs("b", 200, 0), told(), set, true},
	{"an echo", ours("a", 9), theirs("b", 150, 0), marked(10, 100), set, true},
	{"written there, no bridge", ours("a", 9), theirs("b", 200, 0), alone(), set, true},
	{"made there, no bridge", nil, theirs("a", 200, 0), alone(), remove, true},
	{"made there by an agent, no bridge", nil, theirs("a", 200, agentSession), alone(), agree, false},
	{"written on both sides, made here", ours("b", 11), theirs("c", 200, 0), marked(10, 100), set, false},
	{"written on both sides, made there", importedOurs("b", 11, 0, 80, false), theirs("c", 200, 0), marked(10, 100), importWrite, false},
	{"imported before the last mark", importedOurs("b", 11, 0, 200, true), theirs("b", 200, 0), marked(10, 100), agree, false},
	{"imported, then written here", importedOurs("c", 12, 0, 200, false), theirs("b", 200, 0), marked(10, 100), set, false},
	{"deleted there", ours("a", 9), nil, marked(10, 100), importDelete, false},
	{"deleted there, refused", ours("a", 9), nil, refusedOnce(), create, true},
	{"deleted there, written here", ours("a", 11), nil, marked(10, 100), create, true},
	{"seen there beyond the mark, deleted there", ours("a", 11), nil, sawThere(11), importDelete, false},
	{"seen there beyond the mark, deleted there, written here", ours("a", 12), nil, sawThere(11), create, true},
	{"deleted there, with children here", withChild(ours("a", 9)), nil, marked(10, 100), create, true},
	{"deleted there, no bridge", ours("a", 9), nil, alone(), create, true},
	{"an empty ensemble", importedOurs("a", 9, 0, 80, true), nil, marked(0, 0), create, false},
	{"an empty ensemble, an agent's", importedOurs("a", 9, agentSession, 80, true), nil, marked(0, 0), importDelete, false},
	{"an agent has gone", importedOurs("a", 9, agentSession, 80, true), nil, marked(10, 100), importDelete, false},
	{"an agent came back", importedOurs("a", 9, agentSession, 80, true), theirs("a", 200, 7), marked(10, 100), importWrite, false},
	{"an agent's, the same", importedOurs("a", 9, agentSession, 80, true), theirs("a", 80, agentSession), marked(10, 100), agree, false},
	{"an agent's, written here", importedOurs("b", 11, agentSession, 80, false), theirs("a", 80, agentSession), marked(10, 100), set, false},
}

var decisionsOfKinds = []decision{
	{"held", heldOurs("a", 9), theirs("a", 90, mirrorSession), marked(10, 100), agree, false},
	{"held, new", heldOurs("a", 11), nil, marked(10, 100), create, true},
	{"held and gone there", heldOurs("a", 9), nil, marked(10, 100), create, true},
	{"held by a predecessor", heldOurs("a", 9), theirs("a", 90, oldSession), marked(10, 100), replace, false},
	{"held by a vandal", heldOurs("a", 9), theirs("a", 200, agentSession), marked(10, 100), replace, false},
	{"held, persistent there", heldOurs("a", 9), theirs("a", 200, 0), marked(10, 100), replace, false},
	{"held, written there", heldOurs("a", 9), theirs("b", 200, mirrorSession), marked(10, 100), set, true},
	{"persistent, an agent's there", ours("a", 9), theirs("a", 200, agentSession), marked(10, 100), importWrite, false},
	{"persistent, a predecessor's there", ours("a", 11), theirs("a", 90, oldSession), marked(10, 100), replace, false},
	{"another kind, with children", heldOurs("a", 9), &remoteNode{data: []byte("a"), czxid: 50, mzxid: 90, children: 1}, marked(10, 100), agree, false},
	{"not to be read", nil, &remoteNode{opaque: true, mzxid: 200}, marked(10, 100), agree, false},
	{"too large", nil, &remoteNode{large: true, mzxid: 200}, marked(10, 100), agree, false},
	{"ours made too large", ours("a", 9), &remoteNode{large: true, mzxid: 200}, marked(10, 100), set, true},
}

func TestDecide(t *testing.T) {
	for _, tc := range slices.Concat(decisionsOfWrites, decisionsOfKinds) {
		t.Run(tc.name, func(t *testing.T) {
			if v, drift := decide("/p", tc.o, tc.t, &tc.p); v != tc.want || drift != tc.drift {
				t.Errorf("%v, drift %v; want %v, %v", v, drift, tc.want, tc.drift)
			}
		})
	}
}

// world is both sides, reduced to what decisions look at, and a mirror that may stop
// and start anew with nothing but the mark.
type world struct {
	seq, zxid int64
	here      map[string]localNode
	there     map[string]remoteNode
	saved     cursor // in the ensemble
	p         syncState
	until     uint64 // where the next write brings the mark
	imports   int
	writes    int
}

const mine = 1

func (w *world) begin() { // a mirror that knows the mark alone
	w.p = syncState{cursor: w.saved, session: mine, bridge: true, handled: map[string]int64{}, refused: map[string]bool{}}
	w.p.Own = slices.Clone(w.saved.Own)
}

func (w *world) writeHere(path, data string, held bool) {
	w.seq++
	o, ok := w.here[path]
	if !ok {
		o = localNode{created: uint64(w.seq), held: held}
	}
	o.data, o.written, o.asImported = []byte(data), uint64(w.seq), false
	w.here[path] = o
}

func (w *world) writeThere(path, data string, owner int64) {
	w.zxid++
	x, ok := w.there[path]
	if !ok {
		x = remoteNode{czxid: w.zxid, owner: owner}
	}
	x.data, x.mzxid = []byte(data), w.zxid
	x.version++
	w.there[path] = x
}

// step compares one path, as a round does with many; crash says that the mark is not
// brought up to date behind it.
func (w *world) step(path string) action {
	var o *localNode
	var x *remoteNode
	if v, ok := w.here[path]; ok {
		o = &v
	}
	if v, ok := w.there[path]; ok {
		x = &v
	}
	v, _ := decide(path, o, x, &w.p)
	if x != nil && x.mzxid > w.p.Zxid {
		w.p.handled[path] = x.mzxid
	}
	wrote := func() {
		w.zxid++
		w.writes++
		w.p.own(w.zxid)
		w.p.Seq = max(w.p.Seq, w.until)
		w.saved = w.p.cursor // it goes with the write
		w.saved.Own = slices.Clone(w.p.Own)
	}
	switch v {
	case create, replace:
		wrote()
		w.there[path] = remoteNode{data: o.data, czxid: w.zxid, mzxid: w.zxid}
		if o.held {
			y := w.there[path]
			y.owner = mine
			w.there[path] = y
		}
	case set:
		wrote()
		y := *x
		y.data, y.mzxid = o.data, w.zxid
		w.there[path] = y
	case remove:
		wrote()
		delete(w.there, path)
	case importWrite:
		w.seq++
		w.imports++
		n := localNode{created: uint64(w.seq)}
		if o != nil && o.foreign == x.owner && !o.held {
			n.created = o.created
		}
		n.data, n.written, n.external, n.asImported, n.imported, n.foreign = x.data, uint64(w.seq), true, true, x.mzxid, x.owner
		w.here[path] = n
	case importDelete:
		w.seq++
		w.imports++
		delete(w.here, path)
	}
	return v
}

func (w *world) settle() {
	w.p.Seq, w.p.Zxid = uint64(w.seq), w.zxid
	w.p.Own = nil
	clear(w.p.handled)
	w.saved = w.p.cursor
}

// However writes of both sides, comparisons and crashes of the mirror follow each other:
// both sides end up the same, a further comparison changes nothing, and every write from
// outside causes at most one import and a bounded number of writes.
func TestNothingGoesRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{here: map[string]localNode{}, there: map[string]remoteNode{}}
		w.begin()
		paths := []string{"/a", "/b", "/c"}
		outside, crashes := 0, 0
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			path := rapid.SampledFrom(paths).Draw(t, "path")
			_, here := w.here[path]
			_, there := w.there[path]
			switch what := rapid.SampledFrom([]string{"here", "there", "delete here", "delete there", "agent", "hold", "compare", "all", "crash"}).Draw(t, "what"); what {
			case "here":
				w.writeHere(path, fmt.Sprint("h", i), false)
				outside++
			case "hold":
				w.writeHere(path, fmt.Sprint("h", i), true)
				outside++
			case "there":
				w.writeThere(path, fmt.Sprint("t", i), 0)
				outside++
			case "agent":
				w.writeThere(path, fmt.Sprint("t", i), 2)
				outside++
			case "delete here":
				if here {
					w.seq++
					delete(w.here, path)
					outside++
				}
			case "delete there":
				if there {
					w.zxid++
					delete(w.there, path)
					outside++
				}
			case "compare":
				w.step(path)
			case "all":
				for _, p := range paths {
					w.step(p)
				}
				w.settle()
			case "crash":
				w.begin()
				crashes++
			}
		}
		for range 3 {
			for _, p := range paths {
				w.step(p)
			}
			w.settle()
		}
		for _, p := range paths {
			if v := w.step(p); v != agree {
				t.Fatalf("%s: still %v\nhere %+v\nthere %+v", p, v, w.here, w.there)
			}
			o, here := w.here[p]
			x, there := w.there[p]
			if here != there || string(o.data) != string(x.data) {
				t.Fatalf("%s: here %v %s, there %v %s", p, here, o.data, there, x.data)
			}
		}
		if w.imports > outside {
			t.Fatalf("%d imports of %d writes", w.imports, outside)
		}
		if w.writes > outside+crashes*len(paths) {
			t.Fatalf("%d writes of the mirror, %d from outside, %d crashes", w.writes, outside, crashes)
		}
	})
}

// A write that was acknowledged on one side and not contradicted on the other is never
// lost, whenever the mirror crashes.
func TestNoWriteIsLost(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := &world{here: map[string]localNode{}, there: map[string]remoteNode{}}
		w.begin()
		last := ""
		round := func() { // the mark in the ensemble knows what went with the last write
			seq, zxid := uint64(w.seq), w.zxid
			w.until = seq
			w.step("/a")
			w.until = 0
			w.p.Seq = seq
			w.p.advance(zxid)
		}
		for i := range 30 {
			switch rnd.IntN(4) {
			case 0: // one side writes, then both are compared, with crashes in between
				last = fmt.Sprint(i)
				if rnd.IntN(2) == 0 {
					w.writeHere("/a", last, false)
				} else {
					w.writeThere("/a", last, 0)
				}
				if rnd.IntN(3) == 0 {
					w.begin()
				}
				round()
			case 1:
				w.settle()
			case 2:
				w.begin()
			case 3:
				round()
			}
			if o, ok := w.here["/a"]; last != "" && (!ok || string(o.data) != last) {
				t.Fatalf("seed %d, step %d: %q is not here but %q", seed, i, last, o.data)
			}
			if x, ok := w.there["/a"]; last != "" && (!ok || string(x.data) != last) {
				t.Fatalf("seed %d, step %d: %q is not there but %q", seed, i, last, x.data)
			}
		}
	}
}

package ensemble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every line of the table is one rule of who wins.
func TestDecide(t *testing.T) {
	const mirror, agent, old = 1, 2, 3
	at := func(seq uint64, zxid int64) syncState {
		return syncState{cursor: cursor{Seq: seq, Zxid: zxid, Own: [][2]int64{{140, 150}}}, session: mirror, bridge: true}
	}
	alone := at(10, 100)
	alone.bridge = false
	told := at(10, 100)
	told.handled = map[string]int64{"/p": 200}
	refused := at(10, 100)
	refused.refused = map[string]bool{"/p": true}
	us := func(data string, seq uint64) *localNode {
		return &localNode{data: []byte(data), created: 5, written: seq}
	}
	held := func(data string, seq uint64) *localNode { o := us(data, seq); o.held = true; return o }
	abroad := func(data string, seq uint64, owner, mzxid int64, last bool) *localNode {
		o := us(data, seq)
		o.abroad, o.foreign, o.imported, o.asImported = true, owner, mzxid, last
		return o
	}
	them := func(data string, mzxid, owner int64) *remoteNode {
		return &remoteNode{data: []byte(data), czxid: 50, mzxid: mzxid, owner: owner}
	}
	parent := func(o *localNode) *localNode { o.children = 1; return o }
	family := func(x *remoteNode) *remoteNode { x.children = 1; return x }
	for _, tc := range []struct {
		name  string
		o     *localNode
		t     *remoteNode
		p     syncState
		want  action
		drift bool
	}{
		{"nothing anywhere", nil, nil, at(10, 100), agree, false},
		{"the same", us("a", 9), them("a", 90, 0), at(10, 100), agree, false},
		{"the same, written by somebody", us("a", 9), them("a", 200, 0), at(10, 100), agree, false},
		{"made here", us("a", 11), nil, at(0, 0), create, false},
		{"made here, new", &localNode{created: 11, written: 11}, nil, at(10, 100), create, false},
		{"written here", us("b", 11), them("a", 90, 0), at(10, 100), set, false},
		{"deleted here", nil, them("a", 90, 0), at(10, 100), remove, false},
		{"deleted here, an echo", nil, them("a", 150, 0), at(10, 100), remove, false},
		{"made there", nil, them("a", 200, 0), at(10, 100), importWrite, false},
		{"made there by an agent", nil, them("a", 200, agent), at(10, 100), importWrite, false},
		{"made there and refused", nil, them("a", 200, 0), told, remove, false},
		{"written there", us("a", 9), them("b", 200, 0), at(10, 100), importWrite, false},
		{"written there and refused", us("a", 9), them("b", 200, 0), told, set, true},
		{"an echo", us("a", 9), them("b", 150, 0), at(10, 100), set, true},
		{"written there, no bridge", us("a", 9), them("b", 200, 0), alone, set, true},
		{"made there, no bridge", nil, them("a", 200, 0), alone, remove, true},
		{"made there by an agent, no bridge", nil, them("a", 200, agent), alone, agree, false},
		{"written on both sides, made here", us("b", 11), them("c", 200, 0), at(10, 100), set, false},
		{"written on both sides, made there", abroad("b", 11, 0, 80, false), them("c", 200, 0), at(10, 100), importWrite, false},
		{"imported before the last mark", abroad("b", 11, 0, 200, true), them("b", 200, 0), at(10, 100), agree, false},
		{"imported, then written here", abroad("c", 12, 0, 200, false), them("b", 200, 0), at(10, 100), set, false},
		{"deleted there", us("a", 9), nil, at(10, 100), importDelete, false},
		{"deleted there, refused", us("a", 9), nil, refused, create, true},
		{"deleted there, written here", us("a", 11), nil, at(10, 100), create, true},
		{"deleted there, with children here", parent(us("a", 9)), nil, at(10, 100), create, true},
		{"deleted there, no bridge", us("a", 9), nil, alone, create, true},
		{"an empty ensemble", abroad("a", 9, 0, 80, true), nil, at(0, 0), create, false},
		{"an empty ensemble, an agent's", abroad("a", 9, agent, 80, true), nil, at(0, 0), importDelete, false},
		{"an agent has gone", abroad("a", 9, agent, 80, true), nil, at(10, 100), importDelete, false},
		{"an agent came back", abroad("a", 9, agent, 80, true), them("a", 200, 7), at(10, 100), importWrite, false},
		{"an agent's, the same", abroad("a", 9, agent, 80, true), them("a", 80, agent), at(10, 100), agree, false},
		{"an agent's, written here", abroad("b", 11, agent, 80, false), them("a", 80, agent), at(10, 100), set, false},
		{"held", held("a", 9), them("a", 90, mirror), at(10, 100), agree, false},
		{"held, new", held("a", 11), nil, at(10, 100), create, true},
		{"held and gone there", held("a", 9), nil, at(10, 100), create, true},
		{"held by a predecessor", held("a", 9), them("a", 90, old), at(10, 100), replace, false},
		{"held by a vandal", held("a", 9), them("a", 200, agent), at(10, 100), replace, false},
		{"held, persistent there", held("a", 9), them("a", 200, 0), at(10, 100), replace, false},
		{"held, written there", held("a", 9), them("b", 200, mirror), at(10, 100), set, true},
		{"persistent, an agent's there", us("a", 9), them("a", 200, agent), at(10, 100), importWrite, false},
		{"persistent, a predecessor's there", us("a", 11), them("a", 90, old), at(10, 100), replace, false},
		{"another kind, with children", held("a", 9), family(them("a", 90, 0)), at(10, 100), agree, false},
		{"not to be read", nil, &remoteNode{opaque: true, mzxid: 200}, at(10, 100), agree, false},
		{"too large", nil, &remoteNode{large: true, mzxid: 200}, at(10, 100), agree, false},
		{"ours made too large", us("a", 9), &remoteNode{large: true, mzxid: 200}, at(10, 100), set, true},
	} {
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
		n.data, n.written, n.abroad, n.asImported, n.imported, n.foreign = x.data, uint64(w.seq), true, true, x.mzxid, x.owner
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

package publisher

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
)

// world draws a load, its sizes and a fleet. Serving shards and exported ones differ in
// two of three worlds.
func world(t *rapid.T) (*model.Load, map[string]uint64, []offer) {
	exported := rapid.IntRange(1, 4).Draw(t, "exported")
	shards := rapid.SampledFrom([]int{exported, 1, exported + 2}).Draw(t, "shards")
	load := ask(int32(shards), uint32(rapid.IntRange(0, 3).Draw(t, "replicas")))
	sizes := map[string]uint64{entry: rapid.Uint64Range(0, 20).Draw(t, entry)}
	for i := range exported {
		sizes[psName(uint32(i))] = rapid.Uint64Range(0, 20).Draw(t, psName(uint32(i)))
	}
	if rapid.Bool().Draw(t, "has dense") {
		sizes["dense_0"] = rapid.Uint64Range(0, 20).Draw(t, "dense_0")
	}
	var offers []offer
	for i := range rapid.IntRange(0, 7).Draw(t, "containers") {
		o := at(fmt.Sprintf("c%d", i), rapid.Int32Range(-1, int32(shards)).Draw(t, "shard"), rapid.SampledFrom([]string{"", "ps", entry, dense}).Draw(t, "kind"),
			rapid.SampledFrom([]int64{5, 15, 25, 40, 100, unlimited}).Draw(t, "free"))
		o.load, o.replica = rapid.Uint64Range(0, 50).Draw(t, "load"), rapid.Int32Range(-1, 2).Draw(t, "replica")
		offers = append(offers, o)
	}
	return load, sizes, offers
}

// may is the rule of who may hold what, written down once more.
func may(load *model.Load, sizes map[string]uint64, o offer, sub string) bool {
	exported := 0
	for s := range sizes {
		if s[:2] == "ps" {
			exported++
		}
	}
	var i int
	if n, _ := fmt.Sscanf(sub, "ps_%d", &i); n == 0 {
		return o.kind == "" && sub == entry || o.kind == "dense" && sub == "dense_0" || o.kind == sub
	}
	switch {
	case o.kind != "" && o.kind != "ps":
		return false
	case o.shard == -1:
		return true
	case exported == int(load.GetNumShard()):
		return int(o.shard) == i
	}
	return o.shard < load.GetNumShard()
}

// feasible tries every way to place one of each.
func feasible(load *model.Load, sizes map[string]uint64, offers []offer) bool {
	var subs []string
	for sub := range sizes {
		// What nobody could ever take blocks nobody.
		if sub != "dense_0" || slices.ContainsFunc(offers, func(o offer) bool { return o.kind == dense }) {
			subs = append(subs, sub)
		}
	}
	left := make([]int64, len(offers))
	for i, o := range offers {
		left[i] = o.free
	}
	var try func(n int) bool
	try = func(n int) bool {
		if n == len(subs) {
			return true
		}
		for i, o := range offers {
			b := int64(sizes[subs[n]])
			if !may(load, sizes, o, subs[n]) || b > left[i] {
				continue
			}
			left[i] -= b
			if try(n + 1) {
				return true
			}
			left[i] += b
		}
		return false
	}
	return try(0)
}

func TestPackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load, sizes, offers := world(t)
		p, problem := pack(load, sizes, offers, nil)
		reversed := slices.Clone(offers)
		slices.Reverse(reversed)
		if q, again := pack(load, sizes, reversed, nil); !proto.Equal(p, q) || problem != again {
			t.Fatalf("the order of containers matters:\n%s %q\n%s %q", show(p), problem, show(q), again)
		}
		if can := feasible(load, sizes, offers); can != (p != nil) {
			t.Fatalf("planned %s (%q), and that one of each can be placed is %v", show(p), problem, can)
		}
		if p == nil {
			if problem == "" {
				t.Fatal("no plan, and no reason")
			}
			return
		}
		check(t, load, sizes, offers, p, problem)
		spent := map[string]int64{}
		for _, a := range p.GetAssignments() {
			for _, b := range a.GetBytes() {
				spent[a.GetContainer()] += int64(b)
			}
		}
		for _, o := range offers {
			if spent[o.id] > o.free {
				t.Fatalf("%s has %d bytes and is given %d: %s", o.id, o.free, spent[o.id], show(p))
			}
		}
		// A plan in force is kept: packing again moves nothing.
		after := held(offers, p)
		if q, again := pack(load, sizes, after, p); again != problem && !(problem != "" && again != "") || !proto.Equal(p, q) {
			t.Fatalf("packed again:\n%s %q\n%s %q", show(p), problem, show(q), again)
		}
	})
}

// moves counts what is placed in q and was not in p.
func moves(p, q *publish.Planned) (n int) {
	for _, a := range q.GetAssignments() {
		for sub := range a.GetSubModels() {
			if !slices.ContainsFunc(p.GetAssignments(), func(b *publish.Assignment) bool {
				_, has := b.GetSubModels()[sub]
				return has && b.GetContainer() == a.GetContainer()
			}) {
				n++
			}
		}
	}
	return n
}

// checkMoves compares a plan with the one before: what answered goes on answering, and
// everything that could be kept was.
func checkMoves(t *rapid.T, load *model.Load, sizes map[string]uint64, offers []offer, p, q *publish.Planned) {
	serving := map[string]int{} // by sub-model
	for _, o := range offers {
		for sub := range o.serving {
			serving[sub]++
		}
	}
	alive := func(c string) bool {
		return slices.ContainsFunc(offers, func(o offer) bool { return o.id == c })
	}
	had := map[string]int{}
	for _, a := range p.GetAssignments() {
		for sub := range a.GetSubModels() {
			if alive(a.GetContainer()) {
				had[sub]++
			}
		}
	}
	for sub, want := range wanted(load, sizes, offers) {
		now, kept := 0, 0
		for _, a := range q.GetAssignments() {
			if _, has := a.GetSubModels()[sub]; !has {
				continue
			}
			now++
			if slices.ContainsFunc(p.GetAssignments(), func(b *publish.Assignment) bool {
				_, has := b.GetSubModels()[sub]
				return has && b.GetContainer() == a.GetContainer()
			}) {
				kept++
			}
		}
		answers := 0
		for _, a := range q.GetAssignments() {
			if _, has := a.GetSubModels()[sub]; has {
				for _, o := range offers {
					if o.id == a.GetContainer() && o.serving[sub] {
						answers++
					}
				}
			}
		}
		if serving[sub] > 0 && answers == 0 {
			t.Fatalf("%s answered and nothing that is planned does:\n%s\n%s", sub, show(p), show(q))
		}
		// Everything that could be kept was, unless nobody served it and it
		// had to make room for the first of something else.
		if serving[sub] > 0 && kept < min(had[sub], want) {
			t.Fatalf("%s had %d places, of %d wanted, and kept %d:\n%s\n%s", sub, had[sub], want, kept, show(p), show(q))
		}
	}
}

// answer has some of what is planned answer from now on.
func answer(t *rapid.T, offers []offer, p *publish.Planned) {
	for i := range offers {
		o := &offers[i]
		for _, a := range p.GetAssignments() {
			if a.GetContainer() != o.id {
				continue
			}
			for sub := range a.GetSubModels() {
				if rapid.Bool().Draw(t, "answers") {
					o.serving[sub] = true
				}
			}
		}
	}
}

// A fleet lives: containers die and join, and what is planned starts to answer or does
// not. After each step only what was lost or is missing is placed anew, and what answers
// is never taken away while nothing else does.
func TestMovesAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load, sizes, offers := world(t)
		var p *publish.Planned
		names := len(offers)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			q, problem := pack(load, sizes, offers, p)
			if q == nil {
				if problem == "" {
					t.Fatal("no plan, and no reason")
				}
			} else {
				check(t, load, sizes, offers, q, problem)
				checkMoves(t, load, sizes, offers, p, q)
				// Packed again, nothing moves. What was dropped may have made room for more.
				if again, _ := pack(load, sizes, replanned(offers, p, q), q); moves(again, q) != 0 || (problem == "" && moves(q, again) != 0) {
					t.Fatalf("packed again, it moves:\n%s\n%s", show(q), show(again))
				}
				offers, p = replanned(offers, p, q), q
			}
			answer(t, offers, p)
			if n := len(offers); n > 0 && rapid.Bool().Draw(t, "dies") {
				offers = slices.Delete(offers, n-1, n)
			}
			if rapid.Bool().Draw(t, "joins") {
				offers = append(offers, at(fmt.Sprintf("c%d", names), -1, "", 40))
				names++
			}
		}
	})
}

// wanted is how often each sub-model is to be placed.
func wanted(load *model.Load, sizes map[string]uint64, offers []offer) map[string]int {
	out := map[string]int{}
	for _, d := range newPacker(load, sizes, offers, nil).demands {
		out[d.sub] = d.want
	}
	return out
}

// replanned is the fleet, seen once q took the place of p.
func replanned(offers []offer, p, q *publish.Planned) []offer {
	out := slices.Clone(offers)
	for i := range out {
		o := &out[i]
		for _, x := range []struct {
			plan *publish.Planned
			back bool
		}{{p, true}, {q, false}} {
			for _, a := range x.plan.GetAssignments() {
				for _, bytes := range a.GetBytes() {
					switch {
					case a.GetContainer() != o.id:
					case x.back:
						o.giveBack(bytes)
						o.load -= min(o.load, max(bytes, 1))
					default:
						o.spend(bytes)
						o.load += max(bytes, 1)
					}
				}
			}
		}
		serving := map[string]bool{}
		for _, a := range q.GetAssignments() {
			for sub := range a.GetSubModels() {
				if a.GetContainer() == o.id && o.serving[sub] {
					serving[sub] = true
				}
			}
		}
		o.serving = serving
	}
	return out
}

// held is the fleet once it serves p.
func held(offers []offer, p *publish.Planned) []offer {
	out := replanned(offers, nil, p)
	for i := range out {
		for _, a := range p.GetAssignments() {
			for sub := range a.GetSubModels() {
				if a.GetContainer() == out[i].id {
					out[i].serving[sub] = true
				}
			}
		}
	}
	return out
}

// check is what holds for every plan: all is served, each replica of a sub-model on a
// container of its own that is alive, under a number of its own; as often as asked, or
// the problem says what is short.
func check(t *rapid.T, load *model.Load, sizes map[string]uint64, offers []offer, p *publish.Planned, problem string) {
	seen := map[string]bool{}
	count := map[string]int{}
	for _, a := range p.GetAssignments() {
		for sub := range a.GetSubModels() {
			if !slices.ContainsFunc(offers, func(o offer) bool { return o.id == a.GetContainer() && may(load, sizes, o, sub) }) {
				t.Fatalf("%s is on %s, which is gone or does not take it: %s", sub, a.GetContainer(), show(p))
			}
			where, number := sub+"@"+a.GetContainer(), fmt.Sprint(sub, "/", a.GetReplica())
			if seen[where] || seen[number] {
				t.Fatalf("%s or %s twice: %s", where, number, show(p))
			}
			seen[where], seen[number] = true, true
			count[sub]++
		}
	}
	demanded := wanted(load, sizes, offers)
	_, unfit := sizes["dense_0"]
	_, fits := demanded["dense_0"]
	short := unfit && !fits
	for sub, want := range demanded {
		if count[sub] == 0 || count[sub] > want {
			t.Fatalf("%s has %d replicas where %d are wished: %s", sub, count[sub], want, show(p))
		}
		short = short || count[sub] < want
	}
	if short != (problem != "") {
		t.Fatalf("short is %v, and the problem is %q: %s", short, problem, show(p))
	}
}

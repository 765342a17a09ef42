package publisher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
)

func ask(shards int32, replicas uint32) *model.Load {
	return &model.Load{ModelName: "m", ModelDir: "/d", NumShard: shards, Version: 3, Replicas: replicas, Job: "j"}
}

func sized(shards int, bytes uint64) map[string]uint64 {
	out := map[string]uint64{entry: bytes}
	for i := range shards {
		out[psName(uint32(i))] = bytes
	}
	return out
}

// show writes a plan as "ps_0/0@a" words.
func show(p *publish.Planned) string {
	var words []string
	for _, a := range p.GetAssignments() {
		for sub := range a.GetSubModels() {
			words = append(words, fmt.Sprintf("%s/%d@%s", sub, a.GetReplica(), a.GetContainer()))
		}
	}
	return strings.Join(words, " ")
}

// plannedAs is the reverse of show.
func plannedAs(words string) *publish.Planned {
	p := &publish.Planned{ModelName: "m", ModelDir: "/d", Version: 3, NumPs: 1}
	for _, w := range strings.Fields(words) {
		sub, rest, _ := strings.Cut(w, "/")
		number, id, _ := strings.Cut(rest, "@")
		a := &publish.Assignment{Container: id, SubModels: map[string]string{sub: "/d/" + sub + "/3"}, Bytes: map[string]uint64{sub: 10}}
		fmt.Sscan(number, &a.Replica)
		fmt.Sscanf(sub, "ps_%d", &a.Shard)
		p.Assignments = append(p.Assignments, a)
	}
	return p
}

func at(id string, shard int32, kind string, free uint64, serving ...string) offer {
	o := offer{id: id, shard: shard, kind: kind, free: free, serving: map[string]bool{}}
	for _, s := range serving {
		o.serving[s] = true
	}
	return o
}

func TestPack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		load    *model.Load
		bytes   uint64
		offers  []offer
		current string
		want    string
		problem string
	}{
		{"the demo", ask(2, 2), 10, []offer{at("e", -1, "entry", 99), at("p00", 0, "ps", 99), at("p01", 0, "ps", 99), at("p10", 1, "ps", 99), at("p11", 1, "ps", 99)}, "",
			"entry/0@e ps_0/0@p00 ps_0/1@p01 ps_1/0@p10 ps_1/1@p11", ""},
		{"one container takes all", ask(2, 1), 10, []offer{at("a", -1, "", 30)}, "", "entry/0@a ps_0/0@a ps_1/0@a", ""},
		{"least loaded first", ask(2, 1), 10, []offer{at("a", -1, "", 99), at("b", -1, "", 99), at("c", -1, "", 99)}, "", "entry/0@a ps_0/0@b ps_1/0@c", ""},
		{"its own shard before any", ask(1, 1), 10, []offer{at("a", -1, "", 99), at("b", -1, "ps", 99), at("c", 0, "ps", 99)}, "", "entry/0@a ps_0/0@c", ""},
		{"the tight one goes first", ask(2, 1), 10, []offer{at("a", -1, "ps", 10), at("b", 1, "ps", 10), at("e", -1, "entry", 10)}, "", "entry/0@e ps_0/0@a ps_1/0@b", ""},
		{"fewer replicas than wished", ask(1, 3), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 9)}, "", "entry/0@e ps_0/0@a", ""},
		{"one entry per entry container, as many as replicas", ask(1, 2), 1, []offer{at("e", -1, "entry", 9), at("f", -1, "entry", 9), at("g", -1, "entry", 9), at("a", 0, "ps", 9)}, "", "entry/0@e entry/1@f ps_0/0@a", ""},
		{"memory not reported", ask(1, 1), 10, []offer{at("a", -1, "", unlimited)}, "", "entry/0@a ps_0/0@a", ""},
		{"nobody there", ask(1, 1), 10, nil, "", "", "can take entry (10 bytes)"},
		{"no entry", ask(1, 1), 10, []offer{at("a", -1, "ps", 99)}, "", "", "offers shard any, for entry"},
		{"a shard without a container", ask(2, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99)}, "", "", "offers shard 1 or -1"},
		{"too small", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 9)}, "", "", "can take ps_0 (10 bytes)"},

		{"nothing moves", ask(1, 1), 10, []offer{at("a", -1, "", 0, "ps_0", entry), at("b", 0, "ps", 99), at("e", -1, "entry", 99)}, "entry/0@a ps_0/0@a", "entry/0@a ps_0/0@a", ""},
		{"a dead one is replaced, the others stay", ask(2, 2), 10, []offer{at("e", -1, "entry", 99), at("a", -1, "ps", 99), at("b", -1, "ps", 99), at("d", -1, "ps", 99)},
			"entry/0@e ps_0/0@c ps_0/1@a ps_1/0@a ps_1/1@b", "entry/0@e ps_0/0@d ps_0/1@a ps_1/0@a ps_1/1@b", ""},
		{"a dead one without a successor", ask(1, 2), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/0@a", ""},
		{"fewer wished: the available one stays", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/1@b", ""},
		{"more wished", ask(1, 2), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 99)}, "entry/0@e ps_0/1@b", "entry/0@e ps_0/0@a ps_0/1@b", ""},
		{"no longer fit, but the last that answers", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0"), at("b", 0, "ps", 99)}, "entry/0@e ps_0/0@a", "entry/0@e ps_0/0@a ps_0/1@b", ""},
		{"no longer fit, and its successor answers", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0"), at("b", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/1@b", ""},
		{"no longer fit, and no successor", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a", "entry/0@e ps_0/0@a", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var current *publish.Planned
			if tc.current != "" {
				current = plannedAs(tc.current)
			}
			for i := range tc.offers {
				for _, a := range current.GetAssignments() {
					if a.GetContainer() == tc.offers[i].id {
						tc.offers[i].load += 10
					}
				}
			}
			before := proto.CloneOf(current)
			got, problem := pack(tc.load, sized(int(tc.load.GetNumShard()), tc.bytes), tc.offers, current)
			if !proto.Equal(before, current) {
				t.Error("the current plan was changed")
			}
			if tc.problem != "" {
				if got != nil || !strings.Contains(problem, tc.problem) {
					t.Fatalf("got %s, problem %q; want one that says %q", show(got), problem, tc.problem)
				}
				return
			}
			if problem != "" || show(got) != tc.want {
				t.Fatalf("got  %s\nwant %s (problem %q)", show(got), tc.want, problem)
			}
			if err := (&publish.Event{Body: &publish.Event_Planned{Planned: got}}).Validate("m"); err != nil {
				t.Error(err)
			}
			for _, a := range got.GetAssignments() {
				for sub, path := range a.GetSubModels() {
					if path != "/d/"+sub+"/3" {
						t.Errorf("%s lies in %s", sub, path)
					}
				}
			}
		})
	}
}

// world draws a load, its sizes and a fleet.
func world(t *rapid.T) (*model.Load, map[string]uint64, []offer) {
	shards := rapid.Int32Range(1, 4).Draw(t, "shards")
	load := ask(shards, uint32(rapid.IntRange(0, 3).Draw(t, "replicas")))
	sizes := map[string]uint64{}
	for _, sub := range subModels(load) {
		sizes[sub] = rapid.Uint64Range(0, 20).Draw(t, sub)
	}
	var offers []offer
	for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
		o := at(fmt.Sprintf("c%d", i), rapid.Int32Range(-1, shards-1).Draw(t, "shard"), rapid.SampledFrom([]string{"", "ps", entry}).Draw(t, "kind"),
			rapid.SampledFrom([]uint64{5, 15, 40, 100, unlimited}).Draw(t, "free"))
		o.load = rapid.Uint64Range(0, 50).Draw(t, "load")
		offers = append(offers, o)
	}
	return load, sizes, offers
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
		ample := true // somebody takes each sub-model, whatever else lies there
		var all uint64
		for _, b := range sizes {
			all += b * 4
		}
		for i, sub := range subModels(load) {
			ample = ample && slices.ContainsFunc(offers, func(o offer) bool { return o.takes(sub, uint32(max(i-1, 0))) && o.free >= all })
		}
		if problem != "" {
			if ample {
				t.Fatalf("no plan (%s) though every sub-model has a container with room for all", problem)
			}
			return
		}
		check(t, load, offers, p)
		spent := map[string]uint64{}
		for _, a := range p.GetAssignments() {
			for _, b := range a.GetBytes() {
				spent[a.GetContainer()] += b
			}
		}
		for _, o := range offers {
			if spent[o.id] > o.free {
				t.Fatalf("%s has %d bytes and is given %d: %s", o.id, o.free, spent[o.id], show(p))
			}
		}
		// A plan in force is kept: packing again moves nothing.
		after := held(offers, p)
		if q, problem := pack(load, sizes, after, p); problem != "" || !proto.Equal(p, q) {
			t.Fatalf("packed again:\n%s\n%s %q", show(p), show(q), problem)
		}
		// One container dies: what the others hold stays where it is.
		dead := rapid.SampledFrom(p.GetAssignments()).Draw(t, "dead").GetContainer()
		left := slices.DeleteFunc(slices.Clone(after), func(o offer) bool { return o.id == dead })
		q, problem := pack(load, sizes, left, p)
		if problem != "" {
			return
		}
		check(t, load, left, q)
		entries := slices.ContainsFunc(offers, func(o offer) bool { return o.id == dead && o.kind == entry })
		for _, a := range p.GetAssignments() {
			if _, isEntry := a.GetSubModels()[entry]; a.GetContainer() != dead && !(isEntry && entries) &&
				!slices.ContainsFunc(q.GetAssignments(), func(b *publish.Assignment) bool { return proto.Equal(a, b) }) {
				t.Fatalf("%s died and %s moved:\n%s\n%s", dead, a, show(p), show(q))
			}
		}
	})
}

// held is the fleet once it serves p.
func held(offers []offer, p *publish.Planned) []offer {
	out := slices.Clone(offers)
	for i := range out {
		o := &out[i]
		o.serving = map[string]bool{}
		for _, a := range p.GetAssignments() {
			if a.GetContainer() != o.id {
				continue
			}
			for sub, bytes := range a.GetBytes() {
				o.serving[sub] = true
				o.load += bytes
				if o.free != unlimited {
					o.free -= bytes
				}
			}
		}
	}
	return out
}

// check is what holds for every plan: all is served, each replica of a sub-model on a
// container of its own that is alive and takes it, under a number of its own.
func check(t *rapid.T, load *model.Load, offers []offer, p *publish.Planned) {
	seen := map[string]bool{}
	count := map[string]int{}
	for _, a := range p.GetAssignments() {
		for sub := range a.GetSubModels() {
			i := slices.IndexFunc(offers, func(o offer) bool { return o.id == a.GetContainer() })
			if i < 0 || !offers[i].takes(sub, a.GetShard()) {
				t.Fatalf("%s is on %s, which does not take it", sub, a.GetContainer())
			}
			where, number := sub+"@"+a.GetContainer(), fmt.Sprint(sub, "/", a.GetReplica())
			if seen[where] || seen[number] {
				t.Fatalf("%s or %s twice: %s", where, number, show(p))
			}
			seen[where], seen[number] = true, true
			count[sub]++
		}
	}
	for _, sub := range subModels(load) {
		if count[sub] == 0 || count[sub] > int(max(load.GetReplicas(), 1)) {
			t.Fatalf("%s has %d replicas where %d are wished: %s", sub, count[sub], load.GetReplicas(), show(p))
		}
	}
}

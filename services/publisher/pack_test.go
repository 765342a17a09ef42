package publisher

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

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

func numbered(o offer, replica int32) offer {
	o.replica = replica
	return o
}

func at(id string, shard int32, kind string, free int64, serving ...string) offer {
	o := offer{id: id, shard: shard, kind: kind, free: free, serving: map[string]bool{}}
	for _, s := range serving {
		o.serving[s] = true
	}
	return o
}

// packCases are fleets and the plans that are made for them.
var packCases = []struct {
	name    string
	load    *model.Load
	bytes   uint64
	offers  []offer
	current string
	want    string
	problem string // with a plan: what is short
}{
	{"the demo", ask(2, 2), 10, []offer{at("e", -1, "entry", 99), at("p00", 0, "ps", 99), at("p01", 0, "ps", 99), at("p10", 1, "ps", 99), at("p11", 1, "ps", 99)}, "",
		"entry/0@e ps_0/0@p00 ps_0/1@p01 ps_1/0@p10 ps_1/1@p11", ""},
	{"one container takes all", ask(2, 1), 10, []offer{at("a", -1, "", 30)}, "", "entry/0@a ps_0/0@a ps_1/0@a", ""},
	{"least loaded first", ask(2, 1), 10, []offer{at("a", -1, "", 99), at("b", -1, "", 99), at("c", -1, "", 99)}, "", "entry/0@a ps_0/0@b ps_1/0@c", ""},
	{"its own shard before any", ask(1, 1), 10, []offer{at("a", -1, "", 99), at("b", -1, "ps", 99), at("c", 0, "ps", 99)}, "", "entry/0@a ps_0/0@c", ""},
	{"the tight one goes first", ask(2, 1), 10, []offer{at("a", -1, "ps", 10), at("b", 1, "ps", 10), at("e", -1, "entry", 10)}, "", "entry/0@e ps_0/0@a ps_1/0@b", ""},
	{"fewer replicas than wished", ask(1, 3), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 9)}, "", "entry/0@e ps_0/0@a",
		"ps_0 is placed 1 of 3 times: of the 10 bytes that one more needs, b has most free, 9, and 1 are missing"},
	{"one entry per entry container, as many as replicas", ask(1, 2), 1, []offer{at("e", -1, "entry", 9), at("f", -1, "entry", 9), at("g", -1, "entry", 9), at("a", 0, "ps", 9)}, "", "entry/0@e entry/1@f ps_0/0@a", "ps_0 is placed 1 of 2 times: no further container offers shard 0 or -1"},
	{"memory not reported", ask(1, 1), 10, []offer{at("a", -1, "", unlimited)}, "", "entry/0@a ps_0/0@a", ""},
	{"nobody there", ask(1, 1), 10, nil, "", "", "can take entry (10 bytes)"},
	{"no entry", ask(1, 1), 10, []offer{at("a", -1, "ps", 99)}, "", "", "offers shard any, for entry"},
	{"a shard without a container", ask(2, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99)}, "", "", "offers shard 1 or -1"},
	{"too small", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 9)}, "", "", "can take ps_0 (10 bytes)"},

	{"nothing moves", ask(1, 1), 10, []offer{at("a", -1, "", 0, "ps_0", entry), at("b", 0, "ps", 99), at("e", -1, "entry", 99)}, "entry/0@a ps_0/0@a", "entry/0@a ps_0/0@a", ""},
	{"a dead one is replaced, the others stay", ask(2, 2), 10, []offer{at("e", -1, "entry", 99), at("a", -1, "ps", 99), at("b", -1, "ps", 99), at("d", -1, "ps", 99)},
		"entry/0@e ps_0/0@c ps_0/1@a ps_1/0@a ps_1/1@b", "entry/0@e ps_0/0@d ps_0/1@a ps_1/0@a ps_1/1@b", ""},
	{"a dead one without a successor", ask(1, 2), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/0@a", "ps_0 is placed 1 of 2 times: no further container offers shard 0 or -1"},
	{"fewer wished: the available one stays", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/1@b", ""},
	{"more wished", ask(1, 2), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 99), at("b", 0, "ps", 99)}, "entry/0@e ps_0/1@b", "entry/0@e ps_0/0@a ps_0/1@b", ""},
	{"no longer fit, but the last that answers", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0"), at("b", 0, "ps", 99)}, "entry/0@e ps_0/0@a", "entry/0@e ps_0/0@a ps_0/1@b", ""},
	{"no longer fit, and its successor answers", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0"), at("b", 0, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a ps_0/1@b", "entry/0@e ps_0/1@b", ""},
	{"no longer fit, and no successor", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 1, "ps", 99, "ps_0")}, "entry/0@e ps_0/0@a", "entry/0@e ps_0/0@a", "ps_0 is placed 0 of 1 times: no further container offers shard 0 or -1"},

	{"the roomiest is named", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), at("a", 0, "ps", 3), at("b", 0, "ps", 7)}, "", "", "b has most room, 7 bytes, 3 are missing"},
	{"what is planned and not served makes room", ask(2, 1), 10, []offer{at("e", -1, "entry", 99), at("a", -1, "ps", 0), at("b", 0, "ps", 10)},
		"entry/0@e ps_0/0@a", "entry/0@e ps_0/0@b ps_1/0@a", ""},
	{"what answers does not", ask(2, 1), 10, []offer{at("e", -1, "entry", 99), at("a", -1, "ps", 0, "ps_0"), at("b", 0, "ps", 10)}, "entry/0@e ps_0/0@a", "", "can take ps_1 (10 bytes): a has most room, 0 bytes, 10 are missing"},
	{"all ways are searched", ask(3, 1), 10, []offer{at("e", -1, "entry", 99), at("a", -1, "ps", 20), at("b", 0, "ps", 10), at("c", 1, "ps", 9)}, "", "entry/0@e ps_0/0@b ps_1/0@a ps_2/0@a", ""},
	{"its own number within the shard", ask(1, 1), 10, []offer{at("e", -1, "entry", 99), numbered(at("a", 0, "ps", 99), 7)}, "", "entry/0@e ps_0/7@a", ""},
	{"own numbers that are taken", ask(1, 2), 10, []offer{at("e", -1, "entry", 99), numbered(at("a", 0, "ps", 99), 7), numbered(at("b", 0, "ps", 99), 7)}, "", "entry/0@e ps_0/0@b ps_0/7@a", ""},
}

func TestPack(t *testing.T) {
	for _, tc := range packCases {
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
			sizes := sized(int(tc.load.GetNumShard()), tc.bytes)
			got, problem := pack(tc.load, sizes, tc.offers, current)
			if !proto.Equal(before, current) {
				t.Error("the current plan was changed")
			}
			if tc.want == "" {
				if got != nil || !strings.Contains(problem, tc.problem) {
					t.Fatalf("got %s, problem %q; want one that says %q", show(got), problem, tc.problem)
				}
				return
			}
			if problem != tc.problem || show(got) != tc.want {
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

// What nobody can serve is said, and keeps nobody from serving the rest.
func TestUnservableSubModelsBlockNobody(t *testing.T) {
	sizes := sized(2, 10)
	for _, odd := range []string{"dense_0", "entry_1", "ps_01", "user_tower"} {
		sizes[odd] = 10
	}
	fleet := []offer{at("any", -1, "", 99), at("e", -1, entry, 99), at("p0", 0, "ps", 99), at("p1", 1, "ps", 99)}
	p, problem := pack(ask(2, 1), sizes, fleet, nil)
	if got, want := show(p), "entry/0@e ps_0/0@p0 ps_1/0@p1"; got != want {
		t.Errorf("planned %q, want %q", got, want)
	}
	for _, says := range []string{`"dense_0" is served by nobody: start a serving container with --server-type dense`, `"entry_1" is served by nobody: sub-models are`, "and 1 more"} {
		if !strings.Contains(problem, says) {
			t.Errorf("the problem %q does not say %q", problem, says)
		}
	}
	delete(sizes, "entry_1")
	delete(sizes, "ps_01")
	delete(sizes, "user_tower")
	p, problem = pack(ask(2, 1), sizes, append(fleet, at("d", -1, dense, 99)), nil)
	if got, want := show(p), "entry/0@e dense_0/0@d ps_0/0@p0 ps_1/0@p1"; got != want || problem != "" {
		t.Errorf("planned %q (%s), want %q", got, problem, want)
	}
}

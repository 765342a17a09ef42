package publisher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
)

// where writes a plan as "ps_0/0@a:shard" words.
func where(p *publish.Planned) string {
	var words []string
	for _, a := range p.GetAssignments() {
		for sub := range a.GetSubModels() {
			words = append(words, fmt.Sprintf("%s/%d@%s:%d", sub, a.GetReplica(), a.GetContainer(), a.GetShard()))
		}
	}
	return strings.Join(words, " ")
}

// Serving shards need not be as many as the exported sub-models.
func TestSpread(t *testing.T) {
	load := func(serving int32, replicas uint32, spec ...string) *model.Load {
		l := ask(serving, replicas)
		l.SpecReplicas = spec
		return l
	}
	e := at("e", -1, "entry", 99)
	group := func(shard, replica int32, free int64) offer {
		return numbered(at(fmt.Sprintf("s%dr%d", shard, replica), shard, "ps", free), replica)
	}
	for _, tc := range []struct {
		name     string
		load     *model.Load
		exported int
		offers   []offer
		want     string
		problem  string
	}{
		{"five sub-models on two shards", load(2, 1), 5, []offer{e, group(0, 0, 99), group(1, 0, 99)},
			"entry/0@e:0 ps_0/0@s0r0:0 ps_1/0@s1r0:1 ps_2/0@s0r0:0 ps_3/0@s1r0:1 ps_4/0@s0r0:0", ""},
		{"memory decides where home is full", load(2, 1), 3, []offer{e, group(0, 0, 10), group(1, 0, 20)},
			"entry/0@e:0 ps_0/0@s0r0:0 ps_1/0@s1r0:1 ps_2/0@s1r0:1", ""},
		{"two sub-models on four shards", load(4, 1), 2, []offer{e, group(0, 0, 99), group(1, 0, 99), group(2, 0, 99), group(3, 0, 99)},
			"entry/0@e:0 ps_0/0@s0r0:0 ps_0/1@s2r0:2 ps_1/0@s1r0:1 ps_1/1@s3r0:3", ""},
		{"and on containers of any shard", load(4, 1), 2, []offer{e, at("a", -1, "ps", 99), at("b", -1, "ps", 99)},
			"entry/0@e:0 ps_0/0@a:0 ps_0/1@b:2 ps_1/0@b:1 ps_1/1@a:3", ""},
		{"a shard beyond is not asked", load(1, 1), 2, []offer{e, group(0, 0, 10), group(1, 0, 99)}, "",
			"no live container can take ps_1 (10 bytes): s0r0 has most room, 0 bytes, 10 are missing: start a serving container that offers shard 0 to 0 or -1 with that much memory free"},
		{"replicas of each shard", load(2, 2), 2, []offer{e, group(0, 0, 99), group(0, 1, 99), group(1, 0, 99), group(1, 1, 99)},
			"entry/0@e:0 ps_0/0@s0r0:0 ps_0/1@s0r1:0 ps_1/0@s1r0:1 ps_1/1@s1r1:1", ""},
		{"named replicas, by number and by name", load(1, 1, "0:7", "0:8", "e"), 1, []offer{e, at("f", -1, "entry", 99), group(0, 6, 99), group(0, 7, 99), group(0, 8, 99)},
			"entry/0@e:0 ps_0/7@s0r7:0 ps_0/8@s0r8:0", ""},
		{"a named one is not there", load(1, 1, "0:7", "0:8", "e"), 1, []offer{e, group(0, 7, 99)}, "entry/0@e:0 ps_0/7@s0r7:0", "spec_replicas names 0:8, which is not there"},
		{"no named one is there", load(1, 1, "0:7", "e"), 1, []offer{e, group(0, 6, 99)}, "",
			"no live container can take ps_0 (10 bytes): spec_replicas names 0:7, which is not there: start it, or load without spec_replicas"},
		{"many are short", load(5, 2), 5, []offer{e, at("a", -1, "ps", 99)}, "entry/0@e:0 ps_0/0@a:0 ps_1/0@a:1 ps_2/0@a:2 ps_3/0@a:3 ps_4/0@a:4",
			"ps_0 is placed 1 of 2 times: no further container offers shard 0 or -1; ps_1 is placed 1 of 2 times: no further container offers shard 1 or -1; " +
				"ps_2 is placed 1 of 2 times: no further container offers shard 2 or -1; and 2 more are short"},
		{"an export without shards", load(1, 1), 0, []offer{e}, "", "/d holds no ps_0: give the exported_models folder of an export"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, problem := pack(tc.load, sized(tc.exported, 10), tc.offers, nil)
			if where(p) != tc.want || problem != tc.problem {
				t.Fatalf("got  %s\nwant %s\nproblem %q\nwant    %q", where(p), tc.want, problem, tc.problem)
			}
			if p == nil {
				return
			}
			if p.GetNumPs() != uint32(tc.exported) || p.GetIsSpec() != (len(tc.load.GetSpecReplicas()) > 0) {
				t.Errorf("plan %v", p)
			}
			if q, _ := pack(tc.load, sized(tc.exported, 10), held(tc.offers, p), p); where(q) != tc.want {
				t.Errorf("once it serves: %s", where(q))
			}
		})
	}
}

// A new version is loaded beside the old one, so it needs its whole memory.
func TestNewVersionBesideTheOld(t *testing.T) {
	older := plannedAs("entry/0@e ps_0/0@a")
	newer := func(replicas uint32) *model.Load {
		l := ask(1, replicas)
		l.Version = 4
		return l
	}
	e := at("e", -1, "entry", 99, entry)
	for _, tc := range []struct {
		name    string
		offers  []offer
		want    string
		problem string
	}{
		{"room for both", []offer{e, at("a", 0, "ps", 10, "ps_0")}, "entry/0@e ps_0/0@a", ""},
		{"no room, and nobody else answers", []offer{e, at("a", 0, "ps", 9, "ps_0"), at("b", 0, "ps", 99)}, "",
			"ps_0 of version 4 (10 bytes) cannot be loaded beside the version that a serves, and no other replica answers: it has 9 bytes free, 1 are missing: give it that much, or more replicas to the version that is served"},
		{"no room, but it does not answer yet", []offer{e, at("a", 0, "ps", 9), at("b", 0, "ps", 99)}, "entry/0@e ps_0/0@b", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, problem := pack(newer(1), sized(1, 10), tc.offers, older)
			if show(p) != tc.want || problem != tc.problem {
				t.Errorf("got  %s\nwant %s\nproblem %q", show(p), tc.want, problem)
			}
		})
	}
	two := plannedAs("entry/0@e ps_0/0@a ps_0/1@b")
	p, problem := pack(newer(2), sized(1, 10), []offer{e, at("a", 0, "ps", 9, "ps_0"), at("b", 0, "ps", 10, "ps_0"), at("c", 0, "ps", 10)}, two)
	if show(p) != "entry/0@e ps_0/0@c ps_0/1@b" || problem != "" {
		t.Errorf("one replica has room, another one answers meanwhile: %s %q", show(p), problem)
	}
}

package portal

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/react"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/projections/models"
)

func spec(name string) *model.ModelSpec {
	s := proto.CloneOf(modelspec.MovieRanking())
	s.Name = name
	return s
}

func entry(s *model.ModelSpec, l *model.Load, seq uint64) models.Model {
	return models.Model{Spec: events.JSON[*model.ModelSpec]{V: s}, Load: events.JSON[*model.Load]{V: l}, LoadSeq: seq, Seq: seq}
}

// types are the drafts' bodies, by their only set field.
func types(drafts []bus.Draft) string {
	var names []string
	for _, d := range drafts {
		m := d.Event.ProtoReflect()
		names = append(names, m.WhichOneof(m.Descriptor().Oneofs().Get(0)).JSONName())
	}
	return strings.Join(names, " ")
}

func TestResolve(t *testing.T) {
	good := export{shards: 2, versions: []int64{1, 3, 7}}
	for _, tc := range []struct {
		name    string
		ask     *model.Load
		found   export
		want    *model.Load
		refusal string // part of the sentence
	}{
		{"newest, as exported", &model.Load{ModelName: "m", ModelDir: "/d/", NumShard: -1, Job: "j"}, good,
			&model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 1, Job: "j"}, ""},
		{"named version", &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 3, Replicas: 2}, good,
			&model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 3, Replicas: 2}, ""},
		{"a dot is a name", &model.Load{ModelName: "a.b", ModelDir: "/d"}, good,
			&model.Load{ModelName: "a.b", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 1}, ""},
		{"no name", &model.Load{ModelDir: "/d"}, good, nil, "modelName is missing"},
		{"slash in the name", &model.Load{ModelName: "../m", ModelDir: "/d"}, good, nil, "cannot be used"},
		{"dots alone", &model.Load{ModelName: "..", ModelDir: "/d"}, good, nil, "cannot be used"},
		{"colon in the name", &model.Load{ModelName: "m:ps_0", ModelDir: "/d"}, good, nil, "cannot be used"},
		{"long name", &model.Load{ModelName: strings.Repeat("m", 129), ModelDir: "/d"}, good, nil, "at most 128"},
		{"odd job", &model.Load{ModelName: "m", ModelDir: "/d", Job: "a/b"}, good, nil, `job "a/b"`},
		{"relative", &model.Load{ModelName: "m", ModelDir: "d"}, good, nil, "not absolute"},
		{"nothing there", &model.Load{ModelName: "m", ModelDir: "/d"}, export{problem: "nothing there: export first"}, nil, "export first"},
		{"other shards", &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 3}, good,
			&model.Load{ModelName: "m", ModelDir: "/d", NumShard: 3, Version: 7, Replicas: 1}, ""},
		{"negative shards", &model.Load{ModelName: "m", ModelDir: "/d", NumShard: -2}, good, nil, "ask for 1 to 4096 serving shards"},
		{"no such version", &model.Load{ModelName: "m", ModelDir: "/d", Version: 2}, good, nil, "[7 3 1]"},
		{"a checkpoint's version", &model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "model.ckpt-100"}, export{shards: 2, versions: []int64{1, 3, 7}, ckptVersion: 3},
			&model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "model.ckpt-100", NumShard: 2, Version: 3, Replicas: 1}, ""},
		{"a version beside its checkpoint", &model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "model.ckpt-100", Version: 7}, export{shards: 2, versions: []int64{1, 3, 7}, ckptVersion: 3},
			&model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "model.ckpt-100", NumShard: 2, Version: 7, Replicas: 1}, ""},
		{"a checkpoint that is not whole", &model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "model.ckpt-100"}, export{shards: 2, versions: []int64{1}, ckptVersion: 3}, nil, "was exported as version 3, which is not in every"},
		{"a checkpoint of no step", &model.Load{ModelName: "m", ModelDir: "/d", Ckpt: "latest"}, export{shards: 2, versions: []int64{1}, ckptProblem: "it has no step"}, nil, `ckpt of "m": it has no step`},
		{"too many replicas", &model.Load{ModelName: "m", ModelDir: "/d", Replicas: 1001}, good, nil, "at most 1000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := proto.CloneOf(tc.ask)
			got, refusal := resolve(tc.ask, tc.found)
			if !proto.Equal(before, tc.ask) {
				t.Error("the request was changed")
			}
			if tc.refusal != "" {
				if refusal == nil || refusal.Code != bus.CodeInvalid || !strings.Contains(refusal.Message, tc.refusal) {
					t.Fatalf("refusal %v, want one that says %q", refusal, tc.refusal)
				}
				return
			}
			if refusal != nil || !proto.Equal(got, tc.want) {
				t.Fatalf("got %v, %v; want %v", got, refusal, tc.want)
			}
		})
	}
}

func TestInherit(t *testing.T) {
	better := &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 2, Job: "j", Follow: true}
	for _, tc := range []struct {
		name         string
		ask, inForce *model.Load
		want         *model.Load
	}{
		{"nothing in force", &model.Load{ModelDir: "/d"}, nil, &model.Load{ModelDir: "/d"}},
		{"a bare load", &model.Load{ModelDir: "/d/", NumShard: -1}, better, &model.Load{ModelDir: "/d/", NumShard: -1, Replicas: 2, Job: "j", Follow: true}},
		{"of another folder", &model.Load{ModelDir: "/e"}, better, &model.Load{ModelDir: "/e", Replicas: 2}},
		{"of a version", &model.Load{ModelDir: "/d", Version: 3}, better, &model.Load{ModelDir: "/d", Version: 3, Replicas: 2}},
		{"of a checkpoint", &model.Load{ModelDir: "/d", Ckpt: "c-1"}, better, &model.Load{ModelDir: "/d", Ckpt: "c-1", Replicas: 2}},
		{"one that says it all", &model.Load{ModelDir: "/d", Job: "k", Replicas: 1}, better, &model.Load{ModelDir: "/d", Job: "k", Replicas: 1}},
	} {
		before := proto.CloneOf(tc.ask)
		if got := inherit(tc.ask, tc.inForce); !proto.Equal(got, tc.want) || !proto.Equal(before, tc.ask) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestDecideLoad(t *testing.T) {
	load := &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 1}
	newer := &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 8, Replicas: 1}
	broken := spec("m")
	broken.Features[0].Table = "nowhere"
	for _, tc := range []struct {
		name     string
		m        models.Model
		load     *model.Load
		exported *model.ModelSpec
		again    bool
		want     string
		code     string
	}{
		{"declared", entry(spec("m"), nil, 4), load, nil, false, "loadAccepted", ""},
		{"undeclared, spec in the export", models.Model{}, load, spec("other"), false, "declared loadAccepted", ""},
		{"undeclared, no spec", models.Model{}, load, nil, false, "", bus.CodeInvalid},
		{"undeclared, broken spec", models.Model{}, load, broken, false, "", bus.CodeInvalid},
		{"the same again", entry(spec("m"), load, 9), load, nil, false, "", ""},
		{"the same again, to be answered", entry(spec("m"), load, 9), load, nil, true, "loadAccepted", ""},
		{"newer version", entry(spec("m"), load, 9), newer, nil, false, "loadAccepted", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			drafts, refusal := decideLoad("b", tc.m, tc.load, tc.exported, tc.again)
			if tc.code != "" {
				if refusal == nil || refusal.Code != tc.code {
					t.Fatalf("refusal %v, want %s", refusal, tc.code)
				}
				return
			}
			if refusal != nil || types(drafts) != tc.want {
				t.Fatalf("drafts %q, %v; want %q", types(drafts), refusal, tc.want)
			}
			for _, d := range drafts {
				if d.Expect != tc.m.Seq || d.Subject != "monolith.b.model.m" {
					t.Errorf("draft on %s guarded by %d, want the model's subject and %d", d.Subject, d.Expect, tc.m.Seq)
				}
				if err := d.Event.(*model.Event).Validate("m"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestDecideDeclareAndUnload(t *testing.T) {
	load := &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 1}
	other := spec("m")
	other.Seed++
	broken := spec("m")
	broken.Layers = nil
	declare := func(m models.Model, s *model.ModelSpec) func() ([]bus.Draft, *bus.CommandError) {
		return func() ([]bus.Draft, *bus.CommandError) { return decideDeclare("b", m, nil, s) }
	}
	learning := func(m models.Model, j learner, s *model.ModelSpec) func() ([]bus.Draft, *bus.CommandError) {
		return func() ([]bus.Draft, *bus.CommandError) { return decideDeclare("b", m, []learner{j}, s) }
	}
	wide := spec("m")
	wide.Layers = append([]*model.DenseLayer{{Name: "a", Units: 1 << 14}, {Name: "b", Units: 1 << 14}}, wide.Layers...)
	unload := func(m models.Model, name string) func() ([]bus.Draft, *bus.CommandError) {
		return func() ([]bus.Draft, *bus.CommandError) { return decideUnload("b", name, m, "why") }
	}
	for _, tc := range []struct {
		name   string
		decide func() ([]bus.Draft, *bus.CommandError)
		want   string
		code   string
	}{
		{"declare", declare(models.Model{}, spec("m")), "declared", ""},
		{"declare again otherwise", declare(entry(spec("m"), nil, 3), other), "declared", ""},
		{"declare for a running job", learning(entry(spec("m"), nil, 3), learner{"j", modelspec.Hash(spec("m"))}, spec("m")), "declared", ""},
		{"declare otherwise under a running job", learning(entry(spec("m"), nil, 3), learner{"j", modelspec.Hash(spec("m"))}, other), "", bus.CodeInvalid},
		{"declare what a running job learns", learning(entry(other, nil, 3), learner{"j", modelspec.Hash(spec("m"))}, spec("m")), "declared", ""},
		{"declare for an old job", learning(entry(spec("m"), nil, 3), learner{"j", ""}, spec("m")), "declared", ""},
		{"declare otherwise under an old job", learning(entry(spec("m"), nil, 3), learner{"j", ""}, other), "", bus.CodeInvalid},
		{"declare what no shard takes", declare(models.Model{}, wide), "", bus.CodeInvalid},
		{"declare nothing", declare(models.Model{}, nil), "", bus.CodeInvalid},
		{"declare without a name", declare(models.Model{}, spec("")), "", bus.CodeInvalid},
		{"declare what cannot work", declare(models.Model{}, broken), "", bus.CodeInvalid},
		{"declare otherwise while loaded", declare(entry(spec("m"), load, 3), other), "", bus.CodeInvalid},
		{"unload", unload(entry(spec("m"), load, 3), "m"), "unloadAccepted", ""},
		{"unload what is not loaded", unload(entry(spec("m"), nil, 3), "m"), "", bus.CodeNotFound},
		{"unload what nobody knows", unload(models.Model{}, "m"), "", bus.CodeNotFound},
		{"unload nothing", unload(models.Model{}, ""), "", bus.CodeInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			drafts, refusal := tc.decide()
			code := ""
			if refusal != nil {
				code = refusal.Code
			}
			if types(drafts) != tc.want || code != tc.code {
				t.Fatalf("drafts %q, refusal %v; want %q and code %q", types(drafts), refusal, tc.want, tc.code)
			}
		})
	}
}

// asked is a request, and told the first fact of its answer by the builds of a time.
func asked(seq uint64, id string) events.Recorded {
	return events.Recorded{Seq: seq, Subject: "monolith.b.model.m.request", Header: events.Header{ID: id},
		Event: &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{}}}}
}

func told(seq uint64, request events.Recorded, id string) events.Recorded {
	return events.Recorded{Seq: seq, Subject: "monolith.b.model.m", Header: events.Header{ID: id, Causation: request.Header.ID},
		Event: &model.Event{Body: &model.Event_UnloadRefused{UnloadRefused: &model.UnloadRefused{Reason: "r"}}}}
}

func fold(s openRequests, rs ...events.Recorded) openRequests {
	for _, r := range rs {
		s = foldOpenRequests(s, r)
	}
	return s
}

func TestLedger(t *testing.T) {
	one, same, another := asked(1, "a"), asked(2, "a"), asked(3, "b")
	answer := func(seq uint64, r events.Recorded) events.Recorded {
		return told(seq, r, react.ID(r, "portal.requests", 0))
	}
	declared := events.Recorded{Seq: 4, Subject: "monolith.b.model.m", Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec("m")}}}}
	s := fold(openRequestsView.New(), one, same, another, declared,
		events.Recorded{Seq: 5, Subject: "monolith.b.model.m", Header: events.Header{ID: "junk"}, Err: events.ErrMalformed},
		events.Recorded{Seq: 6, Subject: "monolith.b.model.m.request", Header: events.Header{ID: "junk"}, Err: events.ErrMalformed},
		events.Recorded{Seq: 7, Subject: "monolith.b.publish.m.request", Header: events.Header{ID: "not ours"}},
		answer(8, one),
		answer(3, another), // redelivered late: must change nothing
	)
	if s.Answered != 1 || len(s.Open) != 2 || s.Open[0].Seq != 2 || s.Open[1].Seq != 3 || s.Declared["m"] != 4 || s.Seq != 8 {
		t.Fatalf("two requests of one id, the first of them answered: %+v", s)
	}
	if s = fold(s, answer(9, another)); s.Answered != 3 || len(s.Open) != 0 {
		t.Fatalf("the answer of the last one closes the parked one before it: %+v", s)
	}
	// Answers of the first releases follow from the request's id alone.
	earlier := asked(10, "c")
	if s = fold(s, earlier, told(11, earlier, react.EarlierID("c", "portal.requests", 0))); s.Answered != 10 || len(s.Open) != 0 {
		t.Fatalf("an earlier build's answer: %+v", s)
	}
}

// What is parked never has an answer: a flood of it must not grow the ledger for ever.
func TestLedgerIsBounded(t *testing.T) {
	s := openRequestsView.New()
	last := uint64(3 * maxOpen)
	long := strings.Repeat("x", 1000)
	for seq := range last {
		s = fold(s, asked(seq+1, long))
	}
	data, err := json.Marshal(s)
	if err != nil || len(s.Open) > maxOpen || len(data) > 200*maxOpen {
		t.Fatalf("after %d requests %d are open, in %d bytes, %v", last, len(s.Open), len(data), err)
	}
	if s = fold(s, told(last+1, asked(last, long), react.ID(asked(last, long), "portal.requests", 0))); s.Answered != last || len(s.Open) != 0 {
		t.Fatalf("answered %d, want %d", s.Answered, last)
	}
}

// The declared fact says what the request left out, so that no role has a default of its own; the
// same request again is what stands.
func TestDeclaredIsNormalized(t *testing.T) {
	short := spec("m")
	short.Features[0].Field, short.Tables[0].Optimizer, short.Tables[0].Initializer = "", nil, nil
	drafts, refusal := decideDeclare("b", models.Model{}, nil, short)
	if refusal != nil {
		t.Fatal(refusal)
	}
	got := drafts[0].Event.(*model.Event).GetDeclared().GetSpec()
	if got.Features[0].Field != got.Features[0].Name || !proto.Equal(got.Tables[0].Optimizer, short.DenseOptimizer) || got.Tables[0].Initializer == nil {
		t.Errorf("declared is %v", got)
	}
	load := &model.Load{ModelName: "m", ModelDir: "/d", NumShard: 2, Version: 7, Replicas: 1}
	if _, refusal := decideDeclare("b", entry(got, load, 3), nil, short); refusal != nil {
		t.Errorf("the same again: %v", refusal)
	}
}

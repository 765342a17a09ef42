package publisher

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
)

func loaded(l *model.Load, seq uint64) models.Model {
	return models.Model{Load: events.JSON[*model.Load]{V: l}, LoadSeq: seq, Seq: seq}
}

func inForce(p *publish.Planned, failed string, cause, seq uint64) plan.Plan {
	return plan.Plan{Planned: events.JSON[*publish.Planned]{V: p}, Failed: failed, Cause: cause, Seq: seq}
}

func TestDecide(t *testing.T) {
	load := ask(1, 1)
	sizes := sized(1, 10)
	fleet := []offer{at("a", -1, "", 99)}
	good, problem := pack(load, sizes, fleet, nil)
	if problem != "" {
		t.Fatal(problem)
	}
	good.Cause = 5
	more, twice := ask(1, 2), []offer{at("a", -1, "", 99), at("b", -1, "", 99)}
	_, short := pack(more, sizes, fleet, nil)
	if short == "" {
		t.Fatal("one container is enough for two replicas")
	}
	older := proto.CloneOf(good)
	older.Version--
	_, nobody := pack(load, sizes, nil, nil)
	for _, tc := range []struct {
		name    string
		m       models.Model
		now     plan.Plan
		offers  []offer
		unsized string
		want    string
	}{
		{"loaded", loaded(load, 5), plan.Plan{}, fleet, "", "planned"},
		{"in force", loaded(load, 5), inForce(good, "", 5, 6), fleet, "", "nothing"},
		{"the same load accepted once more", loaded(load, 9), inForce(good, "", 5, 6), fleet, "", "nothing"},
		{"another version", loaded(load, 9), inForce(older, "", 5, 6), fleet, "", "planned"},
		{"nobody there", loaded(load, 5), plan.Plan{}, nil, "", "failed"},
		{"nobody there, as said", loaded(load, 5), inForce(nil, nobody, 5, 6), nil, "", "nothing"},
		{"nobody there, asked again", loaded(load, 9), inForce(nil, nobody, 5, 6), nil, "", "failed"},
		{"nobody there any more", loaded(load, 5), inForce(good, "", 5, 6), nil, "", "failed"},
		{"they are back", loaded(load, 5), inForce(good, nobody, 5, 6), fleet, "", "planned"},
		{"not measured", loaded(load, 5), plan.Plan{}, fleet, "ps_0 cannot be measured", "failed"},
		{"unloaded", loaded(nil, 9), inForce(good, "", 5, 6), fleet, "", "withdrawn"},
		{"unloaded, never planned", loaded(nil, 9), inForce(nil, nobody, 5, 6), fleet, "", "withdrawn"},
		{"withdrawn", loaded(nil, 9), inForce(nil, "", 9, 10), fleet, "", "nothing"},
		{"less than asked", loaded(more, 5), plan.Plan{}, fleet, "", "planned and failed"},
		{"less than asked, as said", loaded(more, 5), inForce(good, short, 5, 6), fleet, "", "nothing"},
		{"less than asked, asked again", loaded(more, 9), inForce(good, short, 5, 6), fleet, "", "failed"},
		{"all that was asked, at last", loaded(more, 5), inForce(good, short, 5, 6), twice, "", "planned"},
		{"only declared", models.Model{Seq: 3}, plan.Plan{}, fleet, "", "nothing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			drafts := decide("b", "m", tc.m, tc.now, tc.offers, sizes, tc.unsized)
			got := "nothing"
			if len(drafts) > 0 {
				got, _ = describe(drafts[0])
				e := drafts[0].Event.(*publish.Event)
				if drafts[0].Expect != tc.now.Seq || drafts[0].Subject != "monolith.b.publish.m" {
					t.Errorf("on %s guarded by %d", drafts[0].Subject, drafts[0].Expect)
				}
				if c := e.GetPlanned().GetCause() + e.GetPlanFailed().GetCause() + e.GetWithdrawn().GetCause(); c != tc.m.LoadSeq {
					t.Errorf("cause %d, want %d", c, tc.m.LoadSeq)
				}
				// What was said is said: folded, it leads to nothing more.
				folded := plan.State{Plans: map[string]plan.Plan{"m": tc.now}}
				for i, d := range drafts {
					folded = plan.Fold(folded, events.Recorded{Seq: 100 + uint64(i), Subject: d.Subject, Event: d.Event})
				}
				if len(drafts) > 1 {
					also, _ := describe(drafts[1])
					got += " and " + also
				}
				if again := decide("b", "m", tc.m, folded.Plans["m"], tc.offers, sizes, tc.unsized); len(again) != 0 {
					what, _ := describe(again[0])
					t.Errorf("and then %s again", what)
				}
			}
			if got != tc.want {
				t.Errorf("decided %s, want %s", got, tc.want)
			}
		})
	}
}

func TestOffers(t *testing.T) {
	f, plans := fleet.New(), plan.New()
	var seq uint64
	fold := func(subject events.Subject, e proto.Message) {
		seq++
		r := events.Recorded{Seq: seq, Subject: subject, Event: e}
		f, plans = fleet.Fold(f, r), plan.Fold(plans, r)
	}
	for _, c := range []*container.Container{
		{Id: "a", Kind: "serving", Shard: 1, ServerType: "ps"},
		{Id: "quiet", Kind: "serving", Shard: -1},
		{Id: "gone", Kind: "serving", Shard: -1},
		{Id: "trainer", Kind: "training", Job: "j", ServerType: "ps"},
	} {
		fold(events.Join("b", "container", c.Id), &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}})
		if c.Id != "quiet" {
			fold(events.Join("b", "container", c.Id), &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: 100}}})
		}
	}
	fold(events.Join("b", "container", "gone"), &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "r"}}})
	for _, name := range []string{"m", "n"} {
		p := plannedAs("ps_1/0@a entry/0@a ps_0/0@gone ps_0/1@quiet")
		p.ModelName = name
		fold(events.Join("b", "publish", name), &publish.Event{Body: &publish.Event_Planned{Planned: p}})
	}
	for _, r := range []*replica.Replica{
		{ModelName: "m", ServerType: "ps", Task: 1, Container: "a", Stat: replica.State_AVAILABLE, Version: 3},
		{ModelName: "m", ServerType: "entry", Container: "a", Stat: replica.State_LOADING},
		{ModelName: "n", ServerType: "entry", Container: "a", Stat: replica.State_AVAILABLE, Version: 3},
	} {
		fold(events.Join("b", "replica", r.Key()), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}})
	}
	got := map[string]offer{}
	for _, o := range offersFor("m", f, plans) {
		got[o.id] = o
	}
	a := got["a"]
	// m's entry and n's ps_1, 10 bytes each, are planned there and not in its figures yet.
	if len(got) != 2 || a.free != 80 || a.load != 40 || a.shard != 1 || a.kind != "ps" || !a.serving["ps_1"] || len(a.serving) != 1 {
		t.Errorf("a is %+v of %d", a, len(got))
	}
	if q := got["quiet"]; q.free != unlimited || q.load != 20 {
		t.Errorf("quiet is %+v", q)
	}
}

package publisher

import (
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
)

func fact(bzid, name string, expect uint64, e *publish.Event) bus.Draft {
	return bus.Draft{Subject: publish.Subject(bzid, name), Event: e, Expect: expect}
}

// decide drafts what has to become of one model's plan: nothing while the plan in force
// is still the best. unsized says why sizes are not known, "" when they are. What cannot
// be placed, or not as often as asked, is said once; an older plan stays in force where
// there is no new one.
func decide(bzid, name string, m models.Model, now plan.Plan, offers []offer, sizes map[string]uint64, unsized string) []bus.Draft {
	load := m.Load.V
	if load == nil {
		if now.Planned.V == nil && (now.Failed == "" || now.Cause >= m.LoadSeq) {
			return nil
		}
		return []bus.Draft{fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{
			ModelName: name, Reason: "the model was unloaded", Cause: m.LoadSeq}}})}
	}
	planned, problem := (*publish.Planned)(nil), unsized
	if problem == "" {
		planned, problem = pack(load, sizes, offers, now.Planned.V)
	}
	var drafts []bus.Draft
	said := now.Failed == problem && (problem == "" || now.Cause == m.LoadSeq)
	if planned != nil {
		planned.Cause = now.Planned.V.GetCause()
		// A load accepted once more changes nothing.
		if !proto.Equal(planned, now.Planned.V) || (problem == "" && !said) {
			planned.Cause = m.LoadSeq
			drafts = append(drafts, fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_Planned{Planned: planned}}))
			said = problem == ""
		}
	}
	if !said {
		drafts = append(drafts, fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_PlanFailed{PlanFailed: &publish.PlanFailed{
			ModelName: name, Reason: problem, Cause: m.LoadSeq}}}))
	}
	return drafts
}

// offersFor is the live serving fleet as model name sees it. What plans have placed and
// no container serves yet is not in the memory figures that containers report, so it is
// taken off here.
func offersFor(name string, f fleet.State, plans plan.State) []offer {
	by := map[string]*offer{}
	for id, c := range f.Containers {
		// A unified agent follows its layout, whatever is planned.
		if x := c.Container.V; !c.Alive || x.GetKind() != "serving" || x.GetLayoutPath() != "" {
			continue
		}
		o := &offer{
			id: id, shard: c.Container.V.GetShard(), replica: c.Container.V.GetReplica(), kind: c.Container.V.GetServerType(),
			free: unlimited, serving: map[string]bool{},
		}
		if c.Resource.V != nil {
			o.free = max(c.Resource.V.GetMemory(), 0)
		}
		by[id] = o
	}
	type holding struct{ container, model, sub string }
	available := map[holding]map[int64]bool{} // versions
	for _, r := range f.Replicas {
		if x := r.Replica.V; r.Alive && x.GetStat() == replica.State_AVAILABLE {
			sub := x.GetServerType() // entry and dense may stand without a number
			if sub == "ps" {
				sub = psName(uint32(x.GetTask()))
			}
			h := holding{x.GetContainer(), x.GetModelName(), sub}
			if available[h] == nil {
				available[h] = map[int64]bool{}
			}
			available[h][x.GetVersion()] = true
		}
	}
	for other, p := range plans.Plans {
		for _, a := range p.Planned.V.GetAssignments() {
			o := by[a.GetContainer()]
			if o == nil {
				continue
			}
			for sub := range a.GetSubModels() {
				kind, _, _ := roleOf(sub)
				key := sub
				if kind != "ps" {
					key = kind
				}
				bytes := a.GetBytes()[sub]
				o.load += max(bytes, 1)
				versions := available[holding{o.id, other, key}]
				if len(versions) > 0 && other == name {
					o.serving[sub] = true
				}
				if !versions[p.Planned.V.GetVersion()] {
					o.spend(bytes)
				}
			}
		}
	}
	out := make([]offer, 0, len(by))
	for _, o := range by {
		out = append(out, *o)
	}
	return out
}

package publisher

import (
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/catalog"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/plan"
)

func fact(bzid, name string, guard uint64, e *publish.Event) []bus.Draft {
	return []bus.Draft{{Subject: events.Join(bzid, "publish", name), Event: e, Expect: guard}}
}

// decide drafts what has to become of one model's plan: nothing while the plan in force
// is still the best, one fact otherwise. unsized says why sizes are not known, "" when
// they are. A failure is said once; the older plan stays in force meanwhile.
func decide(bzid, name string, m catalog.Model, now plan.Plan, offers []offer, sizes map[string]uint64, unsized string) []bus.Draft {
	load := m.Load.V
	if load == nil {
		if now.Planned.V == nil && (now.Failed == "" || now.Cause >= m.LoadSeq) {
			return nil
		}
		return fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_Withdrawn{Withdrawn: &publish.Withdrawn{
			ModelName: name, Reason: "the model was unloaded", Cause: m.LoadSeq}}})
	}
	planned, problem := (*publish.Planned)(nil), unsized
	if problem == "" {
		planned, problem = pack(load, sizes, offers, now.Planned.V)
	}
	if problem != "" {
		if now.Failed == problem && now.Cause == m.LoadSeq {
			return nil
		}
		return fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_PlanFailed{PlanFailed: &publish.PlanFailed{
			ModelName: name, Reason: problem, Cause: m.LoadSeq}}})
	}
	planned.Cause = now.Planned.V.GetCause()
	if now.Failed == "" && proto.Equal(planned, now.Planned.V) {
		return nil // a load accepted once more changes nothing
	}
	planned.Cause = m.LoadSeq
	return fact(bzid, name, now.Seq, &publish.Event{Body: &publish.Event_Planned{Planned: planned}})
}

// offersFor is the live serving fleet as model name sees it. What plans have placed and
// no container serves yet is not in the memory figures that containers report, so it is
// taken off here.
func offersFor(name string, f fleet.State, plans plan.State) []offer {
	by := map[string]*offer{}
	for id, c := range f.Containers {
		if !c.Alive || c.Container.V.GetKind() != "serving" {
			continue
		}
		o := &offer{id: id, shard: c.Container.V.GetShard(), kind: c.Container.V.GetServerType(), free: unlimited, serving: map[string]bool{}}
		if c.Resource.V != nil {
			o.free = uint64(max(c.Resource.V.GetMemory(), 0))
		}
		by[id] = o
	}
	type holding struct{ container, model, sub string }
	available := map[holding]bool{}
	for _, r := range f.Replicas {
		if x := r.Replica.V; r.Alive && x.GetStat() == replica.State_AVAILABLE {
			sub := entry
			if x.GetServerType() == "ps" {
				sub = psName(uint32(x.GetTask()))
			}
			available[holding{x.GetContainer(), x.GetModelName(), sub}] = true
		}
	}
	for other, p := range plans.Plans {
		for _, a := range p.Planned.V.GetAssignments() {
			o := by[a.GetContainer()]
			if o == nil {
				continue
			}
			for sub := range a.GetSubModels() {
				bytes := a.GetBytes()[sub]
				o.load += max(bytes, 1)
				served := available[holding{o.id, other, sub}]
				if served && other == name {
					o.serving[sub] = true
				}
				if !served && o.free != unlimited {
					o.free -= min(o.free, bytes)
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

package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/registry"
)

// heartbeatsWithin is for how long heartbeats are listened to: a registry takes a container for
// lost after as long.
const heartbeatsWithin = 3 * time.Second

// roles looks at who answers, who leads and who is alive.
func (e *examination) roles(ctx context.Context, b bus.Bus, s jetstream.Survey) {
	bzid := e.cfg.Conn.BZID
	folded, cancel := context.WithTimeout(ctx, 2*e.cfg.Patience)
	defer cancel()
	fleets, err := follow.Replay(folded, b.Log(), registry.Fleet.Only(bzid), follow.End)
	var plans plan.State
	var jobs lineage.State
	if err == nil {
		plans, err = follow.Replay(folded, b.Log(), registry.Plan.Only(bzid), follow.End)
	}
	if err == nil {
		jobs, err = follow.Replay(folded, b.Log(), registry.Lineage.Only(bzid), follow.End)
	}
	if err != nil {
		e.ill("log", "it cannot be read: "+sentence(err), "name the folder of the trimmed log's archive with --archive, or give more time with --patience", "nats-is-away")
		return
	}
	e.services(s)
	e.leases(s, plans, jobs)
	alive := living(fleets)
	e.heartbeats(ctx, b, alive)
	e.problems(alive)
	e.planned(fleets, plans)
	e.shards(fleets, jobs)
	e.addresses(ctx, alive)
	e.transfers(ctx, jobs)
}

// living are the containers that the registry counts as alive, by id.
func living(f fleet.State) (alive []*container.Container) {
	for _, id := range slices.Sorted(maps.Keys(f.Containers)) {
		if c := f.Containers[id]; c.Alive && c.Container.V != nil {
			alive = append(alive, c.Container.V)
		}
	}
	return alive
}

// services holds that somebody answers for each role without which nothing goes on.
func (e *examination) services(s jetstream.Survey) {
	for _, role := range []struct{ service, name, without string }{
		{"portal", "portal", "no model can be declared or loaded"},
		{"publisher", "publisher", "nothing new is planned"},
		{"registry", "replica-registry", "nobody says who is alive"},
	} {
		check := "role " + role.name
		if !answers(s, role.service) {
			e.ill(check, "nobody answers for it in namespace "+e.cfg.Conn.BZID+": "+role.without+".", "start one (monolith "+role.name+"), or name another namespace with --bzid", "something-was-killed")
			continue
		}
		e.well(check, "it answers.")
	}
}

func answers(s jetstream.Survey, service string) bool {
	return slices.ContainsFunc(s.Services, func(x jetstream.ServiceSurvey) bool { return x.Name == service })
}

// leases holds that who must lead does.
func (e *examination) leases(s jetstream.Survey, plans plan.State, jobs lineage.State) {
	space := events.Escape(e.cfg.Conn.BZID) + "."
	want := map[string]string{}
	if answers(s, "publisher") {
		want[space+"publisher"] = "a publisher"
	}
	for name, j := range jobs.Jobs {
		if j.Started.V != nil && !j.Stopped && answers(s, "trainer."+events.Escape(name)) {
			want[space+events.Escape(name)+".chief"] = "a trainer of job " + name
		}
	}
	held := 0
	for lease := range s.Leases {
		if strings.HasPrefix(lease, space) {
			held++
		}
	}
	missing := false
	for _, lease := range slices.Sorted(maps.Keys(want)) {
		if s.Leases[lease] == "" {
			missing = true
			e.ill("lease "+lease, "nobody holds it, though "+want[lease]+" answers.", "wait 5 s and look again; if it stays so, read that role's log and /readyz: it cannot write its lease", "two-publishers")
		}
	}
	if !missing {
		e.well("leases", "%d are held in this namespace.", held)
	}
}

// heartbeats holds that whoever is counted as alive says so at this moment.
func (e *examination) heartbeats(ctx context.Context, b bus.Bus, alive []*container.Container) {
	silent := map[string]bool{}
	for _, c := range alive {
		if c.GetZnode() == "" { // a foreign agent's node is its heartbeat
			silent[c.GetId()] = true
		}
	}
	if len(silent) == 0 {
		e.well("heartbeats", "no container is registered as alive.")
		return
	}
	total := len(silent)
	var mu sync.Mutex
	all := make(chan struct{})
	prefix := strings.TrimSuffix(bus.PulseSubject(e.cfg.Conn.BZID, "lease", "*"), "*")
	stop, err := b.Signals().Listen(ctx, prefix+"*", func(subject string, _ []byte) {
		mu.Lock()
		defer mu.Unlock()
		before := len(silent)
		for id := range silent {
			if prefix+events.Escape(id) == subject {
				delete(silent, id)
			}
		}
		if before > 0 && len(silent) == 0 {
			close(all)
		}
	})
	if err != nil {
		e.ill("heartbeats", "they cannot be heard: "+sentence(err), "let this user subscribe to "+prefix+"*", "the-connection-to-nats")
		return
	}
	select {
	case <-all:
	case <-time.After(heartbeatsWithin):
	case <-ctx.Done():
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	if len(silent) > 0 {
		e.ill("heartbeats", fmt.Sprintf("%s are registered as alive and were not heard of for %v.", strings.Join(slices.Sorted(maps.Keys(silent)), ", "), heartbeatsWithin),
			"see that these processes run and reach NATS, and that a replica-registry runs, which will call the dead ones lost", "something-was-killed")
		return
	}
	e.well("heartbeats", "all %d containers were heard of.", total)
}

// problems are what the containers say of themselves.
func (e *examination) problems(alive []*container.Container) {
	ill := false
	for _, c := range alive {
		if c.GetProblem() != "" {
			ill = true
			e.ill("container "+c.GetId(), "it says: "+period(strings.ReplaceAll(strings.TrimSpace(c.GetProblem()), "\n", "; ")), "do what the problem's row says", "problems-by-name")
		}
	}
	if !ill {
		e.well("problems", "none of %d containers has one.", len(alive))
	}
}

// planned holds that every sub-model is served where the plan has put it.
func (e *examination) planned(f fleet.State, plans plan.State) {
	for _, name := range slices.Sorted(maps.Keys(plans.Plans)) {
		p := plans.Plans[name]
		check := "model " + name
		if p.Failed != "" {
			e.ill(check, "its newest plan failed: "+period(p.Failed), "do what the reason says; an older plan stays in force", "problems-by-name")
			continue
		}
		if p.Planned.V == nil {
			continue
		}
		served := map[string]bool{}
		for _, r := range f.Replicas {
			if v := r.Replica.V; v != nil && r.Alive && v.GetModelName() == name && v.GetStat() == replica.State_AVAILABLE {
				served[v.GetContainer()+"/"+subModel(v)] = true
			}
		}
		var missing []string
		for _, a := range p.Planned.V.GetAssignments() {
			for sub := range a.GetSubModels() {
				if !served[a.GetContainer()+"/"+sub] {
					missing = append(missing, sub+" on "+a.GetContainer())
				}
			}
		}
		slices.Sort(missing)
		if len(missing) > 0 {
			e.ill(check, "planned and not served: "+strings.Join(missing, ", ")+".", "see these containers' problems, and whether they and model-sync on their machine run", "a-prediction-looks-wrong")
			continue
		}
		e.well(check, "version %d is served as planned.", p.Planned.V.GetVersion())
	}
}

// subModel is the part that a replica serves, as plans spell it.
func subModel(r *replica.Replica) string {
	if r.GetServerType() == "ps" {
		return "ps_" + strconv.Itoa(int(r.GetTask()))
	}
	return r.GetServerType()
}

// shards holds that every shard of a job that runs is ready.
func (e *examination) shards(f fleet.State, jobs lineage.State) {
	for _, name := range slices.Sorted(maps.Keys(jobs.Jobs)) {
		j := jobs.Jobs[name]
		if j.Started.V == nil || j.Stopped {
			continue
		}
		var ill []string
		for _, i := range slices.Sorted(maps.Keys(f.Shards[name])) {
			if !f.Shards[name][i].Healthy {
				ill = append(ill, strconv.Itoa(int(i)))
			}
		}
		if len(ill) > 0 {
			e.ill("job "+name, "its shards "+strings.Join(ill, ", ")+" are not healthy.", "start them, and read their /readyz", "a-trainer-is-not-ready")
			continue
		}
		e.machines(name, f)
	}
}

// machines tells of shards whose machines fail a check.
func (e *examination) machines(job string, f fleet.State) {
	well := true
	for _, i := range slices.Sorted(maps.Keys(f.Shards[job])) {
		if m := f.Shards[job][i].Machine; m.Seq > 0 {
			well = false
			e.ill("job "+job, fmt.Sprintf("the machine of its shard %d fails a check, for which training pauses: %s.", i, m.Reason), "mend the machine, or go on with monolith job resume", "a-machine-fails-a-check")
		}
	}
	if well {
		e.well("job "+job, "its %d shards are healthy.", len(f.Shards[job]))
	}
}

// addresses dials what others are told to dial.
func (e *examination) addresses(ctx context.Context, alive []*container.Container) {
	dials, ill := 0, false
	for _, c := range alive {
		for port, addr := range map[string]string{"grpc": c.GetGrpcAddress(), "http": c.GetHttpAddress(), "rows": c.GetRowsAddress()} {
			if addr == "" || ctx.Err() != nil {
				continue
			}
			dials++
			if err := e.dial(ctx, addr); err != nil {
				ill = true
				e.ill("ports of "+c.GetId(), fmt.Sprintf("its %s port at %s cannot be reached from here: %s", port, addr, sentence(err)),
					"open the way (firewall, network policy), or have it told an address that others reach (--host-ip, --advertise, --listen)", "ports-beyond-this-machine")
			}
		}
	}
	if !ill {
		e.well("ports", "all %d addresses that others are told can be reached from here.", dials)
	}
}

func (e *examination) dial(ctx context.Context, addr string) error {
	if path, is := strings.CutPrefix(addr, "unix://"); is {
		_, err := os.Stat(path)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

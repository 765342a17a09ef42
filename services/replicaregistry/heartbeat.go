package replicaregistry

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/tracectx"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/internal/role"
)

const heartbeatExample = `{"container":{"id":"serving-0","kind":"serving"},"replicas":[]}`

// handleHeartbeat renews the container's lease and appends what has changed. The lease
// counts from the call's arrival, whether or not the append succeeds.
func (s *Server) handleHeartbeat(ctx context.Context, payload []byte) ([]byte, error) {
	var hb replica.Heartbeat
	err := role.Decode(payload, &hb, heartbeatExample)
	if err == nil {
		if refusal := check(&hb); refusal != nil {
			err = refusal
		}
	}
	if err != nil {
		s.heartbeats.WithLabelValues("refused").Inc()
		return nil, err
	}
	id := hb.GetContainer().GetId()
	this := stampOf(&hb)
	var refusal *bus.CommandError
	s.fleet.Read(func(f fleet.State) { refusal = admit(f, &hb) })
	if refusal != nil {
		s.heartbeats.WithLabelValues("refused").Inc()
		if s.leases.refused(id, this) {
			s.env.Log.Warn("heartbeat refused", "container", id, "reason", refusal.Message)
		}
		return nil, refusal
	}
	if s.leases.heard(id, this); hb.GetLeaving() {
		s.leases.drop(id)
	} else {
		s.leases.touch(id, s.cfg.Now())
	}
	// Losing it costs nothing but the other registry's patience.
	_ = s.env.Bus.Signals().Signal(ctx, s.renewal(id), this.signal(hb.GetLeaving()))
	trace := tracectx.Of(ctx)
	var contests []contest
	_, seqs, err := s.store.Append(ctx, func() (drafts []bus.Draft, _ error) {
		if s.leases.late(id, this) {
			return nil, nil // a later call has said how things are
		}
		var refusal *bus.CommandError
		s.fleet.Read(func(f fleet.State) {
			if refusal = admit(f, &hb); refusal == nil {
				drafts, contests = decideHeartbeat(s.env.BZID, f, &hb)
			}
		})
		if refusal != nil {
			return nil, refusal
		}
		for i := range drafts {
			drafts[i].Header.Traceparent = trace
		}
		return drafts, nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range s.leases.contested(id, contests) {
		s.contests.Inc()
		s.env.Log.Warn("replica reported by two containers: it stays with its holder until that lets go",
			"replica", c.key, "holder", c.holder, "reporter", id)
	}
	outcome := "unchanged"
	if len(seqs) > 0 {
		outcome = "changed"
	}
	s.heartbeats.WithLabelValues(outcome).Inc()
	lease := s.cfg.Lease
	if hb.GetLeaving() {
		lease = 0
	}
	return fmt.Appendf(nil, `{"lease_ms":%d}`, lease.Milliseconds()), nil
}

// heardElsewhere renews a lease for a heartbeat that any registry answered.
func (s *Server) heardElsewhere(subject string, payload []byte) {
	id, err := events.Unescape(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil || id == "" {
		return
	}
	this, leaving := parseSignal(payload)
	s.leases.heard(id, this)
	if !leaving {
		s.leases.touch(id, s.cfg.Now())
	}
}

// stamp tells the heartbeats of one container apart.
type stamp struct {
	began  int64 // when its process did
	number uint64
}

func stampOf(hb *replica.Heartbeat) stamp {
	return stamp{hb.GetContainer().GetStartedUs(), hb.GetNumber()}
}

// signal is what registries tell each other of a call.
func (c stamp) signal(leaving bool) []byte {
	return fmt.Appendf(nil, "%d %d %v", c.began, c.number, leaving)
}

// parseSignal is zero for the empty signal of an older registry.
func parseSignal(payload []byte) (c stamp, leaving bool) {
	if _, err := fmt.Sscanf(string(payload), "%d %d %v", &c.began, &c.number, &leaving); err != nil {
		return stamp{}, false
	}
	return c, leaving
}

// expire declares containers lost whose lease has run out. Whoever cannot hear cannot
// judge: while the bus does not answer, or after this process itself stood still,
// everybody is granted one full time-out.
func (s *Server) expire(ctx context.Context) error {
	every := min(max(s.cfg.Lease/10, 20*time.Millisecond), 500*time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := s.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := s.cfg.Now()
		if now.Sub(last) > s.cfg.Lease/2 || !s.reachable(ctx) {
			s.leases.grantAll(s.cfg.Now())
		} else {
			var expired []string
			s.fleet.Read(func(f fleet.State) { expired = s.leases.sweep(members(f), now) })
			for _, id := range expired {
				s.lose(ctx, id)
			}
		}
		last = s.cfg.Now() // what this round took is no standstill: heartbeats went on
	}
}

// reachable asks the bus for anything at all.
func (s *Server) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease/3)
	defer cancel()
	_, err := s.env.Bus.Log().LastOf(ctx, container.Subject(s.env.BZID, "-"))
	return err == nil
}

// lose appends the end of a container whose lease has run out and still has.
func (s *Server) lose(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease)
	defer cancel()
	reason := fmt.Sprintf("no heartbeat for %v", s.cfg.Lease)
	_, seqs, err := s.store.Append(ctx, func() (drafts []bus.Draft, _ error) {
		if s.leases.expired(id, s.cfg.Now()) {
			s.fleet.Read(func(f fleet.State) { drafts = decideLost(s.env.BZID, f, id, &container.Lost{Reason: reason}) })
		}
		return drafts, nil
	})
	switch {
	case err != nil:
		s.env.Log.Warn("container not declared lost yet", "container", id, "err", err)
		s.leases.grantAll(s.cfg.Now())
	case len(seqs) > 0:
		s.expiries.Inc()
		s.leases.drop(id)
		s.env.Log.Warn("container lost", "container", id, "reason", reason, "facts", len(seqs))
	}
}

// handleReplicas lists the live replicas by key, and their containers.
func (s *Server) handleReplicas(context.Context, []byte) ([]byte, error) {
	var reply []byte
	var err error
	s.fleet.Read(func(f fleet.State) { reply, err = json.Marshal(list(f)) })
	return reply, err
}

// handleStarted says whether a model's shards, and its dense part, all have a replica that
// takes traffic. An entry that may not answer before can ask for that; ours do not wait.
func (s *Server) handleStarted(_ context.Context, payload []byte) ([]byte, error) {
	ask := struct {
		Model   string `json:"model"`
		NumPS   int    `json:"numPs"`
		IDC     string `json:"idc"`
		Cluster string `json:"cluster"`
	}{NumPS: -1}
	const example = `{"model":"movies","numPs":20,"idc":"","cluster":""}`
	if err := role.DecodeJSON(payload, &ask, example); err != nil {
		return nil, err
	}
	if ask.Model == "" || ask.NumPS < 0 {
		return nil, bus.Refuse(bus.CodeInvalid, "model and numPs must be given: send a body like %s", example)
	}
	var out struct {
		PS    bool `json:"ps"`
		Dense bool `json:"dense"`
	}
	s.fleet.Read(func(f fleet.State) {
		out.PS = f.Started(ask.Model, "ps", ask.NumPS, ask.IDC, ask.Cluster)
		out.Dense = f.Started(ask.Model, "dense", 1, ask.IDC, ask.Cluster)
	})
	return json.Marshal(out)
}

// listed is one element of the answer to registry.replicas.
type listed struct {
	Key     string                        `json:"key"` // the aggregate of its facts
	State   string                        `json:"state"`
	Replica events.JSON[*replica.Replica] `json:"replica"`
	Seq     uint64                        `json:"seq"` // last fact about it
}

func list(f fleet.State) []listed {
	out := []listed{}
	for _, key := range slices.Sorted(maps.Keys(f.Replicas)) {
		if r := f.Replicas[key]; r.Alive {
			out = append(out, listed{Key: key, State: r.Replica.V.GetStat().String(), Replica: r.Replica, Seq: r.Seq})
		}
	}
	return out
}

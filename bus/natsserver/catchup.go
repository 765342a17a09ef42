package natsserver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// group is how far one replicated thing here is: the cluster's own state, a stream or a consumer.
type group struct {
	Leader             bool // one is known
	CatchingUp         bool // gets from another what it missed
	Committed, Applied uint64
}

// catchUp decides when the replicas of a server that has just started are as new as those elsewhere.
//
// The server's own health check calls a replica well that makes progress, so also one that has much
// to fetch. Here each must first have applied all that was committed at the first look at which the
// check was satisfied, hence at which every group had heard from its leader. From then on the check
// counts, so that a busy replica, which is always a moment behind, stays ready.
type catchUp struct {
	mu    sync.Mutex
	goals map[string]uint64 // index to apply, by group; nil: no look was well yet
	done  bool
}

// look says what is not current, nil once everything is.
func (c *catchUp) look(health error, groups map[string]group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if health != nil {
		c.goals, c.done = nil, false
		return health
	}
	if c.done {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if g := groups[name]; !g.Leader || g.CatchingUp {
			c.goals = nil
			return fmt.Errorf("%s has no leader, or catches up with it", name)
		}
	}
	if c.goals == nil {
		c.goals = map[string]uint64{}
		for name, g := range groups {
			c.goals[name] = g.Committed
		}
		return errors.New("what the other servers have committed has just been heard: one more look")
	}
	for _, name := range slices.Sorted(maps.Keys(c.goals)) {
		if g, here := groups[name]; here && g.Applied < c.goals[name] {
			return fmt.Errorf("%s has applied %d of %d entries", name, g.Applied, c.goals[name])
		}
	}
	c.done, c.goals = true, nil
	return nil
}

// Current says what of the streams here is not on disk as it is elsewhere; nil: everything is. It
// is to be asked a second apart, by one goroutine. A server that is alone has what it recovered.
func (s *Server) Current() error {
	ns := s.ns.Load()
	var health error
	if h := ns.Healthz(nil); h.Error != "" {
		health = errors.New(h.Error)
	}
	return s.ready.look(health, groupsOf(ns))
}

// groupsOf are the replicated things of a server.
func groupsOf(ns *server.Server) map[string]group {
	out := map[string]group{}
	if !ns.JetStreamIsClustered() {
		return out
	}
	for _, account := range []string{server.DEFAULT_SYSTEM_ACCOUNT, server.DEFAULT_GLOBAL_ACCOUNT} {
		status := ns.Raftz(&server.RaftzOptions{AccountFilter: account})
		if status == nil {
			continue
		}
		for _, groups := range *status {
			for name, g := range groups {
				out[name] = group{Leader: g.Leader != "", CatchingUp: g.CatchingUp, Committed: g.Committed, Applied: g.Applied}
			}
		}
	}
	return out
}

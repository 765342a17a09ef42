package ps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/services/ps/machine"
)

// unwell is the problem's name in the process's health.
const unwell = "machine"

// longestCheck bounds a health command.
const longestCheck = 10 * time.Second

// check is what the configuration has looked at on this machine.
func (s *Server) check() *machine.Check {
	return &machine.Check{
		Memory: s.memory,
		High:   s.cfg.Health.Memory, Command: s.cfg.Health.Command,
		Env:     []string{"MONOLITH_JOB=" + s.cfg.Job, fmt.Sprintf("MONOLITH_SHARD=%d", s.cfg.Shard)},
		Timeout: min(s.cfg.Health.Every, longestCheck),
	}
}

// checks looks at the machine every so often until ctx ends, whatever it has found before.
func (s *Server) checks(ctx context.Context) {
	c := s.check()
	tick := time.NewTicker(s.cfg.Health.Every)
	defer tick.Stop()
	defer s.env.Health.OK(unwell)
	for {
		found := c.Look(ctx)
		if ctx.Err() == nil {
			s.showMachine(found)
			if err := s.do(ctx, func(ctx context.Context) error { return s.tellMachine(ctx, found) }); err != nil && ctx.Err() == nil {
				s.log.Warn("how the machine is could not be said, trying again at the next check", "err", err, "in", s.cfg.Health.Every)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) showMachine(found *machine.Failure) {
	if found == nil {
		s.m.machine.Set(1)
		s.env.Health.OK(unwell)
		return
	}
	s.m.machine.Set(0)
	s.env.Health.Fail(unwell, errors.New(found.Reason))
}

// tellMachine appends a change of what was found, once in an epoch, which forgets what was said in the one
// before. Only the leading goroutine calls it.
func (s *Server) tellMachine(ctx context.Context, found *machine.Failure) error {
	epoch := s.ready0.GetEpoch()
	if (found != nil) == (s.failedIn == epoch) {
		return nil
	}
	fact := &shard.Event{Body: &shard.Event_MachineRecovered{MachineRecovered: &shard.MachineRecovered{Epoch: epoch}}}
	if found != nil {
		fact = &shard.Event{Body: &shard.Event_MachineFailed{MachineFailed: &shard.MachineFailed{Status: found.Status, Reason: found.Reason, Epoch: epoch}}}
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	if err := s.tell(ctx, fact); err != nil {
		return err
	}
	if s.failedIn = 0; found != nil {
		s.failedIn = epoch
		s.log.Warn("the machine is not well: training pauses", "status", found.Status, "reason", found.Reason)
		return nil
	}
	s.log.Info("the machine is well again")
	return nil
}

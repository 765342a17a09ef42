// Package psrole runs the ps role of a job of one shard on a log in memory, for benchmarks.
package psrole

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/ps"
)

// BZID and Job are the shard's namespace and job.
const (
	BZID = "bench"
	Job  = "bench"
)

// Shard is the role, ready, with an untrained model.
type Shard struct {
	Server *ps.Server
	Bus    bus.Bus
	Local  *rowwire.Local

	dir  string
	run  context.Context
	stop context.CancelFunc
	done errgroup.Group
}

// Start starts it as cfg says, which need not name job, model, folder and address.
func Start(ctx context.Context, spec *model.ModelSpec, cfg ps.Config) (_ *Shard, err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return nil, err
	}
	s := &Shard{Bus: mem.New(), Local: rowwire.NewLocal(), dir: dir}
	s.run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	_, err = s.Bus.Log().Append(ctx, bus.Draft{Subject: model.Subject(BZID, spec.GetName()), Expect: bus.Any, Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: spec}}}})
	if err != nil {
		return nil, err
	}
	cfg.Job, cfg.Model, cfg.Dir, cfg.Listen = Job, spec.GetName(), dir, "unix://"+filepath.Join(dir, "rows")
	if s.Server, err = ps.New(cfg, services.Env{BZID: BZID, Bus: s.Bus, Local: s.Local, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	s.Go(s.Server.Run)
	select {
	case <-s.Server.Ready():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s, nil
}

// Go runs f until Close, which awaits it.
func (s *Shard) Go(f func(ctx context.Context) error) { s.done.Go(func() error { return f(s.run) }) }

// Close ends the role and removes its folder.
func (s *Shard) Close() error {
	s.stop()
	return errors.Join(s.done.Wait(), s.Bus.Close(), os.RemoveAll(s.dir))
}

package product

import (
	"context"
	"errors"
	"fmt"
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

// psShard is the ps role on a bus in memory, for the latency of its lookups alone.
type psShard struct {
	server *ps.Server
	bus    bus.Bus
	local  *rowwire.Local
	dir    string
	tcp    string
	stop   context.CancelFunc
	done   *errgroup.Group
}

// RunShard starts the role with a filled table, as [StartShard] says.
func RunShard(ctx context.Context, keys int) (_ Shard, err error) {
	dir, err := os.MkdirTemp("", "monolith-bench-")
	if err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &psShard{bus: mem.New(), local: rowwire.NewLocal(), dir: dir, stop: stop, done: new(errgroup.Group)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	const bzid, name = "bench", "bench"
	_, err = s.bus.Log().Append(ctx, bus.Draft{Subject: model.Subject(bzid, name), Expect: bus.Any, Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: itemSpec(name)}}}})
	if err != nil {
		return nil, err
	}
	cfg := ps.Config{Job: name, Model: name, Dir: dir, Listen: "unix://" + filepath.Join(dir, "rows")}
	if s.server, err = ps.New(cfg, services.Env{BZID: bzid, Bus: s.bus, Local: s.local, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	s.done.Go(func() error { return s.server.Run(run) })
	select {
	case <-s.server.Ready():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ln, err := rowwire.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.tcp = ln.Addr().String()
	s.done.Go(func() error { return rowwire.Serve(run, ln, s.server.Rows(), rowwire.Options{}) })
	if err := s.fill(ctx, name, keys); err != nil {
		return nil, err
	}
	return s, nil
}

// itemSpec is a model of one table of 16 numbers a row.
func itemSpec(name string) *model.ModelSpec {
	sgd := &model.Optimizer{Kind: &model.Optimizer_Sgd{Sgd: &model.Sgd{LearningRate: 1}}}
	return &model.ModelSpec{
		Name:     name,
		Features: []*model.Feature{{Name: "item", Field: "item", Slot: 1, Table: psTable}},
		Tables: []*model.Table{{Name: psTable, Dim: psDim, Optimizer: sgd,
			Initializer: &model.Initializer{Kind: &model.Initializer_Zeros{Zeros: &model.Zeros{}}}}},
		Layers:         []*model.DenseLayer{{Name: "out", Units: 1, Activation: model.Activation_SIGMOID}},
		DenseOptimizer: sgd,
		Label:          &model.Label{Field: "y", Threshold: 1},
	}
}

// fill teaches a gradient for each key, so that each has a row.
func (s *psShard) fill(ctx context.Context, job string, keys int) error {
	const at = 4096
	for from := 0; from < keys; from += at {
		ids := make([]int64, min(at, keys-from))
		grads := make([]float32, 16*len(ids))
		for i := range ids {
			ids[i] = int64(from + i)
			grads[16*i] = float32(i)
		}
		r, err := s.server.Rows().Apply(ctx, &rowwire.ApplyRequest{Job: job, Epoch: 1, From: int64(from), To: int64(from + len(ids)), RecordUnix: 1,
			Tables: []rowwire.TableGrads{{Table: "item", IDs: ids, Grads: grads}}})
		if err != nil || !r.Applied {
			return fmt.Errorf("fill the shard: %w", err)
		}
	}
	return nil
}

func (s *psShard) TCP() string           { return s.tcp }
func (s *psShard) Unix() string          { return s.server.Addr() }
func (s *psShard) Local() *rowwire.Local { return s.local }

func (s *psShard) Close() error {
	s.stop()
	return errors.Join(s.done.Wait(), s.bus.Close(), os.RemoveAll(s.dir))
}

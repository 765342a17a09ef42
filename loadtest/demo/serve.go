package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// Size is how a model is served.
type Size struct{ Shards, Replicas int }

// SizeOf is that of a stack.
func SizeOf(s *host.Stack) Size { return Size{s.Config.Shards, s.Config.Replicas} }

// Serve waits for the declared model's first export in a folder, has it loaded, and returns the
// entry once a prediction has come back. It tells say how it gets on.
func (j *Job) Serve(ctx context.Context, exports string, size Size, spec *model.ModelSpec, say func(format string, args ...any), dial ...grpc.DialOption) (entry *replica.Replica, err error) {
	name := spec.GetName()
	inputs, err := scenario.InputsOf(spec)
	if err != nil {
		return nil, err
	}
	version, err := j.AwaitExport(ctx)
	if err != nil {
		return nil, fmt.Errorf("wait for the first export: %w", err)
	}
	if !j.loaded(name) {
		seq, err := j.Load(ctx, &model.Load{ModelName: name, ModelDir: exports, Job: host.JobName, Replicas: uint32(size.Replicas)})
		if err != nil {
			return nil, fmt.Errorf("load the model: %w", err)
		}
		say("version %d was exported, its load is fact %d", version, seq)
	}
	for {
		entry, err := j.AwaitServing(ctx, name, size.Shards, size.Replicas)
		if err != nil {
			return nil, fmt.Errorf("wait until every replica serves %s: %w", name, err)
		}
		// After a crash the view names the addresses of the life before, until the
		// registry hears of the new ones.
		if err = predictOnce(ctx, entry.GetGrpcAddress(), name, inputs, dial); err == nil {
			say("serving gRPC at %s, REST at http://%s/v1/models/%s", entry.GetGrpcAddress(), entry.GetHttpAddress(), name)
			return entry, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the first prediction: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// predictOnce asks the entry at addr for one score.
func predictOnce(ctx context.Context, addr, name string, inputs *scenario.Inputs, dial []grpc.DialOption) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := scenario.Dial(addr, dial...)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Score(ctx, inputs, name, "", []rating.Record{{Rating: rating.Rating{User: 1, Movie: 1}}})
	return err
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// Serve waits for the declared model's first export, has it loaded, and returns the entry's
// address once a prediction has come back. It tells say how it gets on.
func (j *Job) Serve(ctx context.Context, s *host.Stack, say func(format string, args ...any)) (addr string, err error) {
	version, err := j.AwaitExport(ctx)
	if err != nil {
		return "", fmt.Errorf("wait for the first export: %w", err)
	}
	if !j.loaded(host.ModelName) {
		seq, err := j.Load(ctx, &model.Load{ModelName: host.ModelName, ModelDir: s.Exports(), Job: host.JobName, Replicas: uint32(s.Config.Replicas)})
		if err != nil {
			return "", fmt.Errorf("load the model: %w", err)
		}
		say("version %d was exported, its load is fact %d", version, seq)
	}
	for {
		entry, err := j.AwaitServing(ctx, host.ModelName, s.Config.Shards, s.Config.Replicas)
		if err != nil {
			return "", fmt.Errorf("wait until every replica serves %s: %w", host.ModelName, err)
		}
		// After a crash the view names the addresses of the life before, until the
		// registry hears of the new ones.
		if err = predictOnce(ctx, entry.GetGrpcAddress()); err == nil {
			say("serving gRPC at %s, REST at http://%s/v1/models/%s", entry.GetGrpcAddress(), entry.GetHttpAddress(), host.ModelName)
			return entry.GetGrpcAddress(), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the first prediction: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// predictOnce asks the entry at addr for one score.
func predictOnce(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := scenario.Dial(addr)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Predict(ctx, host.ModelName, "", []int64{1}, []int64{1})
	return err
}

package role

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Run runs a role's parts, side by side, and returns when all have ended: with ctx, or with the
// first that fails. That one's error comes under the role's name; a clean stop returns nil.
func Run(ctx context.Context, name string, parts ...func(context.Context) error) error {
	g, run := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(run) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

package role

import (
	"context"
	"errors"
	"testing"
)

func TestRun(t *testing.T) {
	until := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	broken := errors.New("broken")
	err := Run(t.Context(), "portal", until, func(context.Context) error { return broken }, until)
	if !errors.Is(err, broken) || err.Error() != "portal: broken" {
		t.Errorf("a part that fails: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := func(ctx context.Context) error { stop(); <-ctx.Done(); return broken }
	if err := Run(ctx, "portal", until, ended); err != nil {
		t.Errorf("a clean stop: %v", err)
	}
	if err := Run(t.Context(), "portal", func(context.Context) error { return nil }); err != nil {
		t.Errorf("parts that end: %v", err)
	}
}

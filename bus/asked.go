package bus

import (
	"context"

	"github.com/monolith-go/monolith/events"
)

type askedKey struct{}

// WithAsked returns a ctx under which every Append says that a asked for it, unless the draft says
// who did.
func WithAsked(ctx context.Context, a events.Asked) context.Context {
	if a == (events.Asked{}) {
		return ctx
	}
	return context.WithValue(ctx, askedKey{}, a.Fact())
}

// AskedOf is who asked for what is done under ctx.
func AskedOf(ctx context.Context) events.Asked {
	a, _ := ctx.Value(askedKey{}).(events.Asked)
	return a
}

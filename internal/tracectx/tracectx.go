// Package tracectx carries W3C trace context as one string. NATS headers keep the case
// of their keys and otel's HeaderCarrier does not, so every transport of ours moves the
// string itself and only here it meets otel.
package tracectx

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

const key = "traceparent"

// With returns ctx with the remote parent that traceparent names; a malformed or empty
// one changes nothing.
func With(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{key: traceparent})
}

// Of is the traceparent of the span in ctx, "" without one.
func Of(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[key]
}

package doctor

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/host/otlp"
)

// otlp asks whether the collector takes telemetry.
func (e *examination) otlp(ctx context.Context) {
	if err := e.cfg.OTLP.Validate(); err != nil {
		e.ill("OTLP", sentence(err), "mend --otlp-endpoint or the OTEL_EXPORTER_OTLP variables", "telemetry-by-otlp")
		return
	}
	for _, a := range otlp.Probe(ctx, e.cfg.OTLP, e.cfg.Patience) {
		check := "OTLP " + a.Signal
		if a.Err != nil {
			e.ill(check, fmt.Sprintf("%s does not take %s: %s", a.Endpoint, a.Signal, sentence(a.Err)),
				"start the collector, name its gRPC port with --otlp-endpoint, or leave this signal out with "+a.Switch()+"=none", "telemetry-by-otlp")
			continue
		}
		e.well(check, "%s takes them.", a.Endpoint)
	}
}

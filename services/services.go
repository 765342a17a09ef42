// Package services holds what every role is made of: New starts nothing, Run owns all
// goroutines until it returns, Ready closes once the role has caught up.
//
// A role's defaults stand in its Config's withDefaults alone, which New and Register call: a
// field that is zero takes its default, except that where a zero makes sense one that
// Register has bound to its flag is meant.
package services

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/kernels/nn"
)

// Role is one of the services, in a process of its own or beside the others.
type Role interface {
	// Run serves until ctx ends, then drains; a clean stop returns nil.
	Run(ctx context.Context) error
	// Ready is closed once the role answers correctly.
	Ready() <-chan struct{}
}

// Env is what a role is given by the command that hosts it. All of it is shared and
// outlives the role.
type Env struct {
	BZID    string
	Bus     bus.Bus
	Log     *slog.Logger
	Metrics prometheus.Registerer // already labelled with the role
	Tracer  trace.Tracer
	Local   *rowwire.Local // servers of the row protocol in this process; nil: each is reached by its socket
	Rows    *tls.Config    // of the row protocol's two ends; nil: it is not encrypted
	TLS     mtls.Files     // of the role's other ports, as far as their own flags name none
	Health  *health.State  // what keeps the role from its work; nil: nobody looks
	Surveys *files.Surveys // of the files that trainers learn, shared by all; nil: each makes its own
	Stdin   *files.Pipe    // the records of standard input, where they are learnt; nil: they are not
	Lanes   *nn.Lanes      // what the process computes on, shared by all its roles; nil: each computation has its own
}

package tfssupervisor

import "context"

// Server is one running model server. All addresses are as clients on other machines
// should dial them.
type Server struct {
	GRPCAddr string
	HTTPAddr string
	RowsAddr string // empty: the server answers no rows
	Secure   bool   // its gRPC port is one of TLS, with the certificate that its supervisor was given
	PID      int
	Command  []string // empty: inside this process
	// Wait returns once the server has ended: nil after a clean end.
	Wait func() error
	// Kill ends it at once; Wait returns afterwards. Stop asks it to drain first, and
	// may be nil.
	Kill func()
	Stop func()
}

// Launcher starts model servers, one at a time. Start returns once the server answers
// on its addresses; the server outlives ctx, which bounds the start alone.
type Launcher interface {
	Start(ctx context.Context) (Server, error)
}

// LauncherFunc is a function as a Launcher: how the command line hands in the built-in
// server without this package importing it.
type LauncherFunc func(ctx context.Context) (Server, error)

func (f LauncherFunc) Start(ctx context.Context) (Server, error) { return f(ctx) }

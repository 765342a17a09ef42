package host

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/tfssupervisor"
)

// Role is one service as its host knows it: how it is built, and what it needs around it.
type Role struct {
	Name, Short string

	// bind registers the role's flags. A process of one role and a stack of all go the same
	// way, by the same flags.
	bind func(fs *pflag.FlagSet) blueprint
	// tasks are the role's in a stack; nil: it runs as another one's server alone.
	tasks func(s *Stack) []Task
	// job names the role in the original's jobs, "" where they have none. It takes a run
	// configuration.
	job string
	// server names the role that this one starts as a process of its own; "": none.
	server string
	// answers is set where clients are served from memory whatever else does not work, NATS
	// and Kafka included.
	answers bool
	// lean is set where garbage is bounded by bytes: the state is a large tree of few pointers, or
	// rows that lie outside of the heap, of whose size the collector knows nothing.
	lean bool
}

// blueprint is a role that has its flags and nothing else yet.
type blueprint struct {
	validate func() error // complains about flags before anything is dialled
	build    func(h surroundings) (services.Role, error)
	alone    func() bool // its flags make it one that needs no log; nil: none do
}

// surroundings are a role's environment, and for the supervisor how a model server is
// started.
type surroundings struct {
	env    services.Env
	launch func(cfg *tfssupervisor.Config) (tfssupervisor.Launcher, error)
	self   func() ([]string, error) // the command line of a built-in server, as a process of its own
}

// listening is a role whose addresses are known once it is ready.
type listening interface {
	services.Role
	GRPCAddr() string
	HTTPAddr() string
	RowsAddr() string
	GRPCSecure() bool
}

// config is a role's flags.
type config[C any] interface {
	*C
	Register(fs *pflag.FlagSet)
	Validate() error
}

// flagsOf binds a role's flags and builds it of them.
func flagsOf[C any, P config[C]](build func(C, surroundings) (services.Role, error)) func(*pflag.FlagSet) blueprint {
	return func(fs *pflag.FlagSet) blueprint {
		cfg := new(C)
		P(cfg).Register(fs)
		b := blueprint{validate: P(cfg).Validate, build: func(h surroundings) (services.Role, error) { return build(*cfg, h) }}
		if s, ok := any(cfg).(interface{ Alone() bool }); ok {
			b.alone = s.Alone
		}
		return b
	}
}

// alone binds a role that needs nothing but its environment.
func alone[C any, P config[C], R services.Role](make func(C, services.Env) (R, error)) func(*pflag.FlagSet) blueprint {
	return flagsOf[C, P](func(cfg C, h surroundings) (services.Role, error) { return made(make(cfg, h.env)) })
}

// launching binds a role that starts a server.
func launching(cfg tfssupervisor.Config, h surroundings) (services.Role, error) {
	launcher, err := h.launch(&cfg)
	if err != nil {
		return nil, err
	}
	return made(tfssupervisor.New(cfg, h.env, launcher))
}

// agent binds a role that starts the servers of an agent.conf: this binary's, unless it is told of others.
func agent(cfg tfssupervisor.AgentConfig, h surroundings) (services.Role, error) {
	self, err := h.self()
	if err != nil {
		return nil, err
	}
	cfg.Self = self
	return made(tfssupervisor.NewAgent(cfg, h.env))
}

// made keeps a nil *Server from becoming a role that is not nil.
func made[R services.Role](r R, err error) (services.Role, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func roleNamed(name string) (Role, error) {
	for _, r := range Roles {
		if r.Name == name {
			return r, nil
		}
	}
	return Role{}, fmt.Errorf("there is no role %q", name)
}

// runRole runs an already built role and reports once it is ready.
func runRole(ctx context.Context, r services.Role, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := make(chan struct{})
	go func() {
		defer close(watch)
		select {
		case <-r.Ready():
			ready()
		case <-ctx.Done():
		}
	}()
	err := r.Run(ctx)
	cancel()
	<-watch
	return err
}

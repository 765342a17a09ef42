package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/flags"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"
	"github.com/monolith-go/monolith/services/modelsync"
	"github.com/monolith-go/monolith/services/portal"
	"github.com/monolith-go/monolith/services/ps"
	"github.com/monolith-go/monolith/services/publisher"
	"github.com/monolith-go/monolith/services/replicaregistry"
	"github.com/monolith-go/monolith/services/tfssupervisor"
	"github.com/monolith-go/monolith/services/trainer"
)

// role is one service as this binary knows it: bind registers its flags and returns
// what they make once they are parsed. A single process and `up` go the same way, by the
// same flags.
type role struct {
	name, short string
	bind        func(fs *pflag.FlagSet) blueprint
}

// blueprint is a role that has its flags and nothing else yet.
type blueprint struct {
	validate func() error // complains about flags before anything is dialled
	build    func(h roleHost) (services.Role, error)
}

// roleHost is what surrounds a role: its environment, and for the supervisor how a
// model server is started.
type roleHost struct {
	env    services.Env
	launch func(cfg *tfssupervisor.Config) (tfssupervisor.Launcher, error)
}

var roles = []role{
	{"portal", "what should be served: declare, load and unload models", func(fs *pflag.FlagSet) blueprint {
		cfg := new(portal.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(portal.New(*cfg, h.env)) }}
	}},
	{"publisher", "who serves what: pack sub-models onto containers", func(fs *pflag.FlagSet) blueprint {
		cfg := new(publisher.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(publisher.New(*cfg, h.env)) }}
	}},
	{"replica-registry", "who is alive: leases, addresses, AgentService and the ZooKeeper port", func(fs *pflag.FlagSet) blueprint {
		cfg := new(replicaregistry.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(replicaregistry.New(*cfg, h.env)) }}
	}},
	{"model-sync", "bytes of models: copies of exports on this machine, what was applied", func(fs *pflag.FlagSet) blueprint {
		cfg := new(modelsync.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(modelsync.New(*cfg, h.env)) }}
	}},
	{"tfs-supervisor", "one model server's process: start, configure, watch, report", func(fs *pflag.FlagSet) blueprint {
		cfg := new(tfssupervisor.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) {
			launcher, err := h.launch(cfg)
			if err != nil {
				return nil, err
			}
			return made(tfssupervisor.New(*cfg, h.env, launcher))
		}}
	}},
	{"modelserver", "the built-in TensorFlow-Serving-compatible model server", func(fs *pflag.FlagSet) blueprint {
		cfg := new(modelserver.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(modelserver.New(*cfg, h.env)) }}
	}},
	{"trainer", "learning: batches, the dense tower, checkpoints and exports", func(fs *pflag.FlagSet) blueprint {
		cfg := new(trainer.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(trainer.New(*cfg, h.env)) }}
	}},
	{"ps", "one training parameter-server shard", func(fs *pflag.FlagSet) blueprint {
		cfg := new(ps.Config)
		cfg.Register(fs)
		return blueprint{cfg.Validate, func(h roleHost) (services.Role, error) { return made(ps.New(*cfg, h.env)) }}
	}},
}

// made keeps a nil *Server from becoming a role that is not nil.
func made[R services.Role](r R, err error) (services.Role, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func roleNamed(name string) (role, error) {
	for _, r := range roles {
		if r.name == name {
			return r, nil
		}
	}
	return role{}, fmt.Errorf("there is no role %q", name)
}

func newRoleCommand(r role) *cobra.Command {
	var conn connect.Config
	var p process
	cmd := &cobra.Command{
		Use:   r.name,
		Short: r.short,
		Args:  flags.NoArgs,
	}
	bound := r.bind(cmd.Flags())
	conn.Register(cmd.Flags())
	p.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := bound.validate(); err != nil {
			return fmt.Errorf("%w: %w", flags.ErrUsage, err)
		}
		return p.host(cmd.Context(), &conn, r.name, bound.build)
	}
	return cmd
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

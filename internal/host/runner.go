package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/host/discovery"
	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Runner is an operating-system process that hosts a role of a training job, of which its launcher or its
// run configuration says which one.
//
//	TF_CONFIG, MLP_ROLE ─┐
//	server_type ─────────┼──► ps or worker ──► Process
//	rank of Horovod … ───┘
type Runner struct {
	roles []*Process
}

// RunnerCommand is monolith runner.
func RunnerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "the role of a training job that the launcher's environment names: ps or trainer",
		Long: "Is ps or trainer, as TF_CONFIG, MLP_ROLE or the field server_type of the run configuration say, so that a\n" +
			"launcher starts one command line everywhere. It takes the flags of both; one that only the other has does nothing.",
		Example: "  monolith runner --run-config run.yaml\n" +
			"  monolith runner --run-config run.yaml --set discovery_type=zk --set zk_server=10.0.0.1:2181 --set server_type=ps --set index=1",
		Args: flags.NoArgs,
	}
	r := NewRunner(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.Run(cmd.Context()) }
	return cmd
}

// NewRunner binds the flags of all roles that it may come to be: what only another role takes does nothing,
// so that one command line starts them all.
func NewRunner(fs *pflag.FlagSet) *Runner {
	r := new(Runner)
	for _, role := range Roles {
		if role.job == "" {
			continue
		}
		own := pflag.NewFlagSet(role.Name, pflag.ContinueOnError)
		r.roles = append(r.roles, NewProcess(role, own))
		own.VisitAll(func(f *pflag.Flag) { share(fs, own, f) })
	}
	return r
}

// Run hosts the role until ctx ends.
func (r *Runner) Run(ctx context.Context) (err error) {
	v, guard, err := discovered(r.roles[0].config) // the same for all of them
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Close()) }()
	job, err := jobRole(v, guard, os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	for _, p := range r.roles {
		if p.role.job == job {
			return p.host(ctx, v, guard)
		}
	}
	return fmt.Errorf("%w: this process is to be %s, and a runner is ps, worker or chief: monolith evaluate reads what a job has saved, and monolith nats is its log", flags.ErrUsage, job)
}

// jobRole is the role, in the original's words, that this process is to be. The launcher knows each of its
// processes; a run configuration, which may be one for all of them, must not say otherwise. A process
// with a rank is a worker: shards have none.
func jobRole(v runconfig.Values, guard *discovery.Guard, getenv func(string) string) (string, error) {
	said := ""
	if v.Given("server_type") {
		if said = v.Get("server_type"); said == "chief" {
			said = "worker" // 0
		}
	}
	own, launched := guard.Task()
	if launched && said != "" && said != own.Role {
		return "", fmt.Errorf("%s says that this process is %s %d, and server_type that it is %s: take server_type away", guard.Kind(), own.Role, own.Index, said)
	}
	if launched {
		return own.Role, nil
	}
	if said != "" {
		return said, nil
	}
	if v.Is("enable_sync_training") {
		ranks, err := runconfig.RanksOf(getenv)
		if err != nil || ranks.Size > 0 {
			return "worker", err
		}
	}
	return "", errors.New("nothing says which role this process is: have its launcher set TF_CONFIG or MLP_ROLE, with discovery_type=mlp for the latter, or give --set server_type=ps or --set server_type=worker, and its index")
}

// shared is a flag of one name that several flag sets have.
type shared struct {
	pflag.Value // of the first of them
	name        string
	of          []*pflag.FlagSet
}

// Set sets it in all of them.
func (s *shared) Set(value string) error {
	for _, fs := range s.of {
		if err := fs.Set(s.name, value); err != nil {
			return err
		}
	}
	return nil
}

// share has fs take a flag of own's, beside those that have one of that name.
func share(fs, own *pflag.FlagSet, f *pflag.Flag) {
	if known := fs.Lookup(f.Name); known != nil {
		s := known.Value.(*shared)
		s.of = append(s.of, own)
		return
	}
	taken := *f
	taken.Value = &shared{Value: f.Value, name: f.Name, of: []*pflag.FlagSet{own}}
	fs.AddFlag(&taken)
}

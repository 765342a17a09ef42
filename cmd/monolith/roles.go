package main

import (
	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// newRole runs one role in this process.
func newRole(r host.Role) *cobra.Command {
	cmd := &cobra.Command{Use: r.Name, Short: r.Short, Args: flags.NoArgs}
	p := host.NewProcess(r, cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.Run(cmd.Context()) }
	return cmd
}

// newNATS runs the NATS server that up embeds in a process of its own.
func newNATS() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nats",
		Short: "the log's server: one of a cluster, or alone",
		Long: "Runs the NATS server that monolith up embeds, with its streams in --dir and each write on disk before it is acked.\n" +
			"It is ready once every replica here is as new as elsewhere; when it is asked to end, it first hands over what it leads.",
		Example: "  monolith nats --dir n1 --name n1 --listen 127.0.0.1:4222 --cluster-name logs --cluster-listen 127.0.0.1:6222 \\\n" +
			"    --routes 127.0.0.1:6222,127.0.0.1:6223,127.0.0.1:6224",
		Args: flags.NoArgs,
	}
	p := host.NewNATSProcess(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return p.Run(cmd.Context()) }
	return cmd
}

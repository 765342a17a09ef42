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

//go:build nobench

package main

import "github.com/spf13/cobra"

// benchCommands are left out: what remains is what a deployment runs.
func benchCommands() []*cobra.Command { return nil }

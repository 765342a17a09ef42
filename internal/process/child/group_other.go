//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

// OwnGroup does nothing: the child alone is signalled.
func OwnGroup(*exec.Cmd) {}

// SignalGroup signals the child alone.
func SignalGroup(cmd *exec.Cmd, sig syscall.Signal) error { return cmd.Process.Signal(sig) }

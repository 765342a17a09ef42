//go:build !linux

package tfssupervisor

import (
	"os/exec"
	"syscall"
)

// ownGroup does nothing: the child alone is signalled.
func ownGroup(*exec.Cmd) {}

// signalGroup signals the child alone.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error { return cmd.Process.Signal(sig) }

//go:build !linux

package tfssupervisor

import (
	"os/exec"
	"syscall"
)

// ownGroup does nothing: only Linux can tie a child to its parent.
func ownGroup(*exec.Cmd) {}

// signalGroup signals the child alone.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error { return cmd.Process.Signal(sig) }

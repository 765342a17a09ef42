package tfssupervisor

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the child into a process group of its own: what it starts is signalled with it, and a
// terminal's interrupt does not reach it before its supervisor has decided.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup signals the child and all that it has started.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, sig) }

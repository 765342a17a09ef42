package child

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// OwnGroup puts cmd, which is yet to start, into a process group of its own: what it starts is signalled
// with it, and a terminal's interrupt does not reach it before its parent has decided.
func OwnGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// SignalGroup signals the child and all that it has started; it is os.ErrProcessDone where nobody is left.
func SignalGroup(cmd *exec.Cmd, sig syscall.Signal) error {
	err := syscall.Kill(-cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

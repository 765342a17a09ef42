package child

import "syscall"

// bind has the kernel kill the process when the thread that starts it ends.
func bind(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

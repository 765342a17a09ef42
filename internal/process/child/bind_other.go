//go:build !linux

package child

import "syscall"

// bind does nothing: only Linux can tie a process to its parent.
func bind(*syscall.SysProcAttr) {}

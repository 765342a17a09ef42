// Package child starts processes that do not outlive this one.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Child is a process that was started.
type Child struct {
	ended chan struct{}
	err   error // of its end; read after ended
}

// Start starts cmd, which on Linux is killed when this process dies, however it dies. Once it has ended, after is
// called, if there is one, and then Ended is closed. Without an error somebody must see to it that the
// process ends: a goroutine and its thread wait for it.
func Start(cmd *exec.Cmd, after func()) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	bind(cmd.SysProcAttr)
	c := &Child{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel ties the child to the thread that starts it: that thread must last as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		if after != nil {
			after()
		}
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Ended is closed when the process is gone.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Wait returns how the process has ended, nil for well, once it has.
func (c *Child) Wait() error {
	<-c.ended
	return c.err
}

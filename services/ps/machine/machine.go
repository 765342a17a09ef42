// Package machine says whether the machine that a shard runs on is well: whether its control group has
// memory left, and what a command of the operator's finds.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/compat/resources"
	"github.com/monolith-go/monolith/internal/process/child"
)

// Failure is what is wrong with a machine.
type Failure struct {
	Status shard.MachineFailed_Status
	Reason string
}

// slack is how much lower the share of memory in use must be before a machine that was out of memory
// counts as well again, so that it does not change with every look.
const slack = 0.05

// Check is what is looked at. It is used by one goroutine.
type Check struct {
	// Memory tells the memory of the control group. An error that is a [resources.ErrUnknown] says
	// that it has no limit.
	Memory func() (resources.Memory, error)
	// High is the share of the control group's memory from which on it counts as used up; 0: none does.
	High float64
	// Command is run by a shell, and says by its status whether the machine is well. Empty: none.
	Command string
	// Env is added to its environment.
	Env []string
	// Timeout bounds it.
	Timeout time.Duration

	low bool // the last look found the memory used up
}

// Look returns what is wrong now, nil if nothing is.
func (c *Check) Look(ctx context.Context) *Failure {
	if f := c.memory(); f != nil {
		return f
	}
	return c.command(ctx)
}

// memory compares what is in use with the limit. Memory that nobody tells is not looked at.
func (c *Check) memory() *Failure {
	if c.High == 0 {
		return nil
	}
	m, err := c.Memory()
	if err != nil || m.Total <= 0 {
		c.low = false
		return nil
	}
	high := c.High
	if c.low {
		high = max(0, high-slack)
	}
	used := float64(m.Total-m.Available) / float64(m.Total)
	if c.low = used >= high; !c.low {
		return nil
	}
	return &Failure{
		Status: shard.MachineFailed_OUT_OF_MEMORY,
		Reason: fmt.Sprintf("%d of %d MiB of the control group are in use, %.0f %% and more count as used up: give it more, or have rows expire", (m.Total-m.Available)>>20, m.Total>>20, 100*high),
	}
}

// maxOutput bounds what is kept of what a command says.
const maxOutput = 1 << 10

// command runs it; one that does not end in time counts as one that failed.
func (c *Check) command(ctx context.Context) *Failure {
	if c.Command == "" {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limit, "sh", "-c", c.Command)
	cmd.Env = append(cmd.Environ(), c.Env...)
	child.OwnGroup(cmd)
	cmd.Cancel = func() error { return child.SignalGroup(cmd, syscall.SIGKILL) } // with all that it has started
	cmd.WaitDelay = time.Second                                                  // a grandchild may hold the output open
	var said head
	cmd.Stdout, cmd.Stderr = &said, &said
	p, err := child.Start(cmd, nil)
	if err == nil {
		err = p.Wait()
	}
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay) && limit.Err() == nil:
		return nil
	case limit.Err() != nil:
		err = fmt.Errorf("it did not end within %v", c.Timeout)
	}
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " ")
	if text != "" {
		text = ": " + text
	}
	return &Failure{Status: shard.MachineFailed_CHECK_FAILED, Reason: fmt.Sprintf("the health command failed: %v%s", err, text)}
}

// head keeps the beginning of what is written to it.
type head []byte

func (h *head) Write(b []byte) (int, error) {
	*h = append(*h, b[:min(len(b), maxOutput-len(*h))]...)
	return len(b), nil
}

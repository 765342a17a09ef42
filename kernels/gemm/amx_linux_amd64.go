//go:build !purego

package gemm

import (
	"fmt"
	"syscall"
)

// Linux lends the 8 KiB of tiles to processes that ask: every thread's signal frames grow.
const (
	archReqXcompPerm = 0x1023
	xfeatureTileData = 18
)

// requestTiles asks for the tiles, for all threads of the process, those to come included.
func requestTiles() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	if errno != 0 {
		return fmt.Errorf("the system does not lend tiles (arch_prctl ARCH_REQ_XCOMP_PERM: %w): it takes Linux 5.16 or newer, no seccomp filter against arch_prctl, and room for tiles on every thread's signal stack", errno)
	}
	return nil
}

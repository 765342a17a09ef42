//go:build !purego && !linux

package gemm

import (
	"fmt"
	"runtime"
)

func requestTiles() error {
	return fmt.Errorf("how %s lends tiles to a process is not known here", runtime.GOOS)
}

package report

import (
	"fmt"
	"runtime"
)

// Machine is where a run is measured.
func Machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}

// Package memdir gives tests folders in memory. A disk shared with others stands still for
// seconds at times, which is longer than the deadlines that a test of sessions, leases or
// answers is about; a process that is killed loses as little there as on a disk. Tests of a machine
// without power have the package powercut.
package memdir

import (
	"os"
	"testing"
)

// shared is where Linux mounts a file system in memory.
const shared = "/dev/shm"

// New makes a folder that goes with the test: in memory where the machine has such a place,
// and a usual temporary folder elsewhere.
func New(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(shared, "monolith-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

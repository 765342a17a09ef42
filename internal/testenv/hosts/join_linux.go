package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// joinedEnv is set in a test that runs in a network of its own.
const joinedEnv = "MONOLITH_TEST_JOINED_HOSTS"

func joined() bool { return os.Getenv(joinedEnv) == "1" }

// Join has the tests of this process, and what they start, be one more machine on the switch of every
// New: they reach the others by address, and nothing else but themselves. TestMain calls it first. It
// begins the process anew in a network namespace of its own; without root it does nothing, and New
// skips.
func Join() error {
	unshare, err := exec.LookPath("unshare")
	if os.Geteuid() != 0 || err != nil {
		return nil
	}
	if joined() {
		return ip("link", "set", "lo", "up")
	}
	err = syscall.Exec(unshare, append([]string{"unshare", "--net", "--"}, os.Args...), append(os.Environ(), joinedEnv+"=1"))
	return fmt.Errorf("begin in a network namespace: %w", err)
}

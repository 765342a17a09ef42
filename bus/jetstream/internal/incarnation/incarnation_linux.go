package incarnation

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Self names this process among all that ever ran since the machine booted: the
// boot, the namespace in which its number counts, the number, and when it began, in clock
// ticks. "": it cannot be said, and nobody will take this process for dead.
var Self = sync.OnceValue(func() string {
	place, ok := where()
	begin, alive := began(os.Getpid())
	if !ok || !alive || begin == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", place, os.Getpid(), begin)
})

// where is the boot and the namespace that this process counts processes in.
func where() (place string, ok bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", false
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", false
	}
	return string(bytes.TrimSpace(boot)) + "/" + ns, true
}

// began is when a process of our namespace began, "" where that cannot be seen; a zombie
// is not alive.
func began(pid int) (begin string, alive bool) {
	if err := unix.Kill(pid, 0); err == unix.ESRCH {
		return "", false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", true
	}
	_, rest, _ := strings.Cut(string(raw[bytes.LastIndexByte(raw, ')')+1:]), " ") // behind its name, which may hold anything
	fields := strings.Fields(rest)
	const state, start = 0, 19
	if len(fields) <= start {
		return "", true
	}
	return fields[start], fields[state] != "Z" && fields[state] != "X"
}

// Over says for certain that the process of an incarnation has ended: it ran on this
// machine, since its last boot and in our namespace, and is there no more.
func Over(incarnation string) bool {
	place, ok := where()
	rest, here := strings.CutPrefix(incarnation, place+"/")
	number, begin, whole := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(number)
	if !ok || !here || !whole || err != nil || pid <= 0 {
		return false
	}
	now, alive := began(pid)
	return !alive || now != "" && now != begin
}

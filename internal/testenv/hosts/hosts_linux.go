// Package hosts makes machines out of network namespaces: each has an address, a disk and a link of
// its own, which can be cut, lose and delay, and whose processes can be stopped, paused and killed
// all at once. It takes root; without it tests are skipped, and say so.
package hosts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Host is one machine. All of one New are on one switch.
type Host struct {
	Address string // IPv4

	t     testing.TB
	name  string // of its namespace
	sw    string // of the switch's
	port  string // of the switch
	disks []disk
	relay *relay // what its link goes through while it is poor
}

// disk is a folder of the machine's own, which its commands find at a path that others have too.
type disk struct{ own, at string }

const (
	network = "10.77.0."
	self    = network + "254" // of a test that has joined
)

// New makes that many machines, at most 200, which go with the test.
func New(t testing.TB, count int) []*Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, machines are network namespaces, and to make them takes root")
	}
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf // where there is root, there is everything
	}
	if _, err := exec.LookPath("ip"); err != nil {
		missing("SKIPPED, machines are network namespaces, and the program ip (Debian's iproute2) is missing")
	}
	id := "m" + strings.ToLower(rand.Text()[:8])
	sw := id + "-switch"
	if err := addNamespace(t, sw); err != nil {
		missing("SKIPPED, this machine makes no network namespaces: %v", err)
	}
	must(t, "-n", sw, "link", "add", "bridge", "type", "bridge")
	must(t, "-n", sw, "link", "set", "bridge", "up")
	hosts := make([]*Host, count)
	for i := range hosts {
		h := &Host{t: t, name: fmt.Sprintf("%s-%d", id, i), sw: sw, port: fmt.Sprintf("port%d", i), Address: network + strconv.Itoa(i+1)}
		if err := addNamespace(t, h.name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Signal(syscall.SIGKILL) })
		h.connect(h.name, h.Address, "-n", h.name)
		must(t, "-n", h.name, "link", "set", "lo", "up")
		hosts[i] = h
	}
	if joined() {
		h := &Host{t: t, sw: sw, port: "test"}
		h.connect(strconv.Itoa(os.Getpid()), self)
		t.Cleanup(func() { must(t, "-n", sw, "link", "del", h.port) }) // a switch that is gone keeps its cables for a while
	}
	return hosts
}

// connect lays a cable from the switch to a namespace, by name or process, whose end has the address.
func (h *Host) connect(namespace, address string, there ...string) {
	h.t.Helper()
	in := func(args ...string) { h.t.Helper(); must(h.t, append(there[:len(there):len(there)], args...)...) }
	must(h.t, "-n", h.sw, "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
	must(h.t, "-n", h.sw, "link", "set", h.port, "master", "bridge", "up")
	in("addr", "add", address+"/24", "dev", "eth0")
	in("link", "set", "eth0", "up")
}

// Cut takes the machine off the network, until Heal: what is sent to it or by it is lost without a
// word.
func (h *Host) Cut() { h.t.Helper(); must(h.t, "-n", h.sw, "link", "set", h.port, "down") }

// Heal ends a cut, and makes a poor link good.
func (h *Host) Heal() {
	h.t.Helper()
	h.unrelay()
	must(h.t, "-n", h.sw, "link", "set", h.port, "master", "bridge", "up")
}

// Disk has commands of the machine find a folder of its own at dir, empty at first, which lasts until
// the test ends and which no other machine sees, though each may have one at the same path. It is
// returned as the test finds it.
func (h *Host) Disk(dir string) (own string) {
	h.t.Helper()
	own = h.t.TempDir()
	h.disks = append(h.disks, disk{own, dir})
	return own
}

// Command is one that runs on the machine.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	script := ""
	var folders []string
	for _, d := range h.disks { // ip has given it mounts of its own
		script += fmt.Sprintf("mount --bind \"$%d\" \"$%d\" && ", len(folders)+1, len(folders)+2)
		folders = append(folders, d.own, d.at)
	}
	script += fmt.Sprintf("shift %d && exec \"$@\"", len(folders))
	all := append([]string{"netns", "exec", h.name, "sh", "-c", script, "sh"}, folders...)
	return exec.Command("ip", append(append(all, name), args...)...)
}

// Signal sends a signal to every process of the machine: SIGKILL is a power cut but for the disk,
// SIGSTOP a machine that stands still until SIGCONT.
func (h *Host) Signal(s syscall.Signal) {
	h.t.Helper()
	for { // a process may start others meanwhile
		pids, err := h.pids()
		if err != nil {
			h.t.Error(err)
			return
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
				h.t.Errorf("send %v to process %d: %v", s, pid, err)
				return
			}
			if s == syscall.SIGSTOP {
				wait.For(h.t, fmt.Sprintf("process %d to stand still", pid), func() bool { return still(pid) })
			}
		}
		if len(pids) == 0 || s != syscall.SIGKILL {
			return
		}
	}
}

// still says that no thread of a process runs: each stops when it next enters or leaves the kernel.
func still(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well formed
	for _, file := range threads {
		raw, err := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(raw[strings.LastIndexByte(string(raw), ')')+1:]), " ")
		if err == nil && !strings.HasPrefix(rest, "T") && !strings.HasPrefix(rest, "Z") {
			return false
		}
	}
	return true
}

// pids are the processes of the machine that have not ended.
func (h *Host) pids() (pids []int, err error) {
	out, err := exec.Command("ip", "netns", "pids", h.name).Output()
	if err != nil {
		return nil, fmt.Errorf("list the processes of %s: %w", h.name, err)
	}
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func addNamespace(t testing.TB, name string) error {
	if err := ip("netns", "add", name); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := ip("netns", "del", name); err != nil {
			t.Error(err)
		}
	})
	return nil
}

func must(t testing.TB, args ...string) {
	t.Helper()
	if err := ip(args...); err != nil {
		t.Fatal(err)
	}
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

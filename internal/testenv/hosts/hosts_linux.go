// Package hosts makes machines out of network namespaces: each has an address and a link of its
// own, which can be cut. It takes root; without it tests are skipped, and say so.
package hosts

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Host is one machine. All of one New are on one switch.
type Host struct {
	Address string // IPv4

	t      testing.TB
	name   string // of its namespace
	sw     string // of the switch's
	port   string // of the switch
	hidden []string
}

// New makes that many machines, at most 200, which go with the test.
func New(t testing.TB, count int) []*Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, machines are network namespaces, and to make them takes root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("SKIPPED, machines are network namespaces, and the program ip (Debian's iproute2) is missing")
	}
	id := "m" + strings.ToLower(rand.Text()[:8])
	sw := id + "-switch"
	if err := addNamespace(t, sw); err != nil {
		t.Skipf("SKIPPED, this machine makes no network namespaces: %v", err)
	}
	must(t, "-n", sw, "link", "add", "bridge", "type", "bridge")
	must(t, "-n", sw, "link", "set", "bridge", "up")
	hosts := make([]*Host, count)
	for i := range hosts {
		h := &Host{t: t, name: fmt.Sprintf("%s-%d", id, i), sw: sw, port: fmt.Sprintf("port%d", i), Address: fmt.Sprintf("10.77.0.%d", i+1)}
		if err := addNamespace(t, h.name); err != nil {
			t.Fatal(err)
		}
		must(t, "-n", sw, "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", h.name)
		must(t, "-n", sw, "link", "set", h.port, "master", "bridge", "up")
		must(t, "-n", h.name, "addr", "add", h.Address+"/24", "dev", "eth0")
		must(t, "-n", h.name, "link", "set", "eth0", "up")
		must(t, "-n", h.name, "link", "set", "lo", "up")
		hosts[i] = h
	}
	return hosts
}

// Cut takes the machine off the network, until Heal: what is sent to it or by it is lost without a
// word.
func (h *Host) Cut() { h.t.Helper(); must(h.t, "-n", h.sw, "link", "set", h.port, "down") }

// Heal ends a cut.
func (h *Host) Heal() { h.t.Helper(); must(h.t, "-n", h.sw, "link", "set", h.port, "up") }

// Hide has commands of the machine find an empty folder at dir: it has another disk.
func (h *Host) Hide(dir string) { h.hidden = append(h.hidden, dir) }

// Command is one that runs on the machine.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	script := ""
	for i := range h.hidden { // ip has given it mounts of its own
		script += fmt.Sprintf("mount -t tmpfs none \"$%d\" && ", i+1)
	}
	script += fmt.Sprintf("shift %d && exec \"$@\"", len(h.hidden))
	all := append([]string{"netns", "exec", h.name, "sh", "-c", script, "sh"}, h.hidden...)
	return exec.Command("ip", append(append(all, name), args...)...)
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

package incarnation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Only a process that certainly ran here, and certainly does no more, is over: whoever is
// taken for dead loses its leases.
func TestOver(t *testing.T) {
	place, ok := where()
	begin, alive := began(os.Getpid())
	if !ok || !alive || Self() != fmt.Sprintf("%s/%d/%s", place, os.Getpid(), begin) {
		t.Fatalf("this process is %q, at %q, begun at %q", Self(), place, begin)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[string]bool{
		Self(): false,
		fmt.Sprintf("%s/%d/%s", place, cmd.Process.Pid, begin): true,  // it has ended
		fmt.Sprintf("%s/%d/%s", place, os.Getpid(), begin+"0"): true,  // its number is another's now
		fmt.Sprintf("elsewhere/%d/%s", cmd.Process.Pid, begin): false, // on another machine, or before its last boot
		fmt.Sprintf("%s/%d", place, cmd.Process.Pid):           false, // cut short
		place + "/0/1": false, place + "/-1/1": false, place + "/-2147483000/1": false, place + "/x/1": false, place + "//1": false,
		fmt.Sprintf("%d/%s", cmd.Process.Pid, begin): false, // without a place
		"": false, place: false, strings.TrimSuffix(place, "]"): false,
	} {
		if got := Over(of); got != want {
			t.Errorf("%q is over: %v, want %v", of, got, want)
		}
	}
}

// A process may be called anything, also what looks like the end of its name and more.
func TestWhenAProcessOfAnyNameBegan(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	own, _ := began(os.Getpid())
	least, err := strconv.Atoi(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a) S 1 2", "a "} {
		link := filepath.Join(t.TempDir(), name)
		if err := os.Symlink(self, link); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(link, "-test.run=^$")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		begin, _ := began(cmd.Process.Pid) // there until it is waited for
		if at, err := strconv.Atoi(begin); err != nil || at < least {
			t.Errorf("%q began at %q, which is before its parent, at %d", name, begin, least)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A process that has ended is over also while its parent has not asked for its status.
func TestAZombieIsOver(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	place, _ := where()
	begin, _ := began(cmd.Process.Pid)
	of := fmt.Sprintf("%s/%d/%s", place, cmd.Process.Pid, begin)
	if Over(of) {
		t.Error("it is over while it runs")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	ended := unix.Siginfo{}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &ended, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if !Over(of) {
		t.Error("a zombie is taken for alive")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

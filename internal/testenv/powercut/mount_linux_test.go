package powercut_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/monolith-go/monolith/internal/testenv/powercut"
)

// TestAsAnyOther does what programs do with files.
func TestAsAnyOther(t *testing.T) {
	dir, _ := powercut.ForTest(t, powercut.Journal)
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	must(os.MkdirAll(at("x/y"), 0o755))
	must(os.WriteFile(at("x/y/big"), big, 0o600))
	got, err := os.ReadFile(at("x/y/big"))
	must(err)
	if !bytes.Equal(got, big) {
		t.Error("it reads back otherwise")
	}
	must(os.Rename(at("x/y/big"), at("x/big")))
	must(os.Truncate(at("x/big"), 10))
	must(os.Truncate(at("x/big"), 12))
	if got, err := os.ReadFile(at("x/big")); err != nil || string(got) != "0123456789\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	must(os.Link(at("x/big"), at("x/other")))
	must(unix.Renameat2(unix.AT_FDCWD, at("x/y"), unix.AT_FDCWD, at("x/other"), unix.RENAME_EXCHANGE))
	if st, err := os.Stat(at("x/other")); err != nil || !st.IsDir() {
		t.Errorf("the exchange left %v, %v", st, err)
	}
	if err := os.Remove(at("x")); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("a full directory went: %v", err)
	}
	f, err := os.OpenFile(at("lock"), os.O_CREATE|os.O_RDWR, 0o644)
	must(err)
	must(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	must(unix.Fallocate(int(f.Fd()), 0, 0, 5000))
	if st, err := f.Stat(); err != nil || st.Size() != 5000 {
		t.Errorf("%v, %v", st, err)
	}
	must(f.Close())
	ln, err := net.Listen("unix", at("sock"))
	must(err)
	must(ln.Close())
	must(os.RemoveAll(at("x")))
	left, err := os.ReadDir(dir)
	must(err)
	if len(left) != 1 || left[0].Name() != "lock" {
		t.Errorf("left: %v", left)
	}
}

// TestCut kills a process in the middle of its writes; what it was told is synced is there.
func TestCut(t *testing.T) {
	for name, residue := range map[string]powercut.Residue{"nothing": powercut.Nothing, "some": powercut.Some} {
		t.Run(name, func(t *testing.T) {
			dir, fs := powercut.ForTest(t, powercut.Journal)
			// Each line is on disk before the next; the last file is never synced.
			script := exec.Command("sh", "-c", `
				for i in 1 2 3; do echo $i > "$0/synced$i"; sync "$0/synced$i"; done
				echo lost > "$0/unsynced"
				echo ready
				while :; do echo more >> "$0/synced3"; sync "$0/synced3"; done`, dir)
			out, err := script.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := script.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
			kill := func() { _ = unix.Kill(-script.Process.Pid, unix.SIGKILL) }
			if err := fs.Cut(residue, rand.New(rand.NewPCG(1, 2)), kill, func() { _ = script.Wait() }); err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"1\n", "2\n", "3\n"} {
				path := filepath.Join(dir, "synced"+string(rune('1'+i)))
				if got, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(got, []byte(want)) {
					t.Errorf("%s: %q, %v", path, got, err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "unsynced")); residue == powercut.Nothing && err == nil && len(got) > 0 {
				t.Errorf("what was never synced is there: %q", got)
			}
			if err := os.WriteFile(filepath.Join(dir, "again"), []byte("x"), 0o600); err != nil {
				t.Errorf("it cannot be written to afterwards: %v", err)
			}
		})
	}
}

// Command init is the whole user space of the emulated machine: it runs /test with the
// words of /args, prints how it ended, and switches the machine off.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Println("emulator: FAILED:", err)
	} else {
		fmt.Println("emulator: passed")
	}
	// All that was printed must have left the serial line (tcdrain).
	const tcsbrk = 0x5409
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, os.Stdout.Fd(), tcsbrk, 1)
	// Bochs ends when this word comes in at its port.
	if port, err := os.OpenFile("/dev/port", os.O_WRONLY, 0); err == nil {
		for _, c := range []byte("Shutdown") {
			_, _ = port.WriteAt([]byte{c}, 0x8900)
		}
	}
	select {}
}

func run() error {
	for _, m := range [][2]string{{"proc", "/proc"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		if strings.HasPrefix(line, "model name") {
			fmt.Printf("emulator: %s", line)
		}
		for flag := range strings.FieldsSeq(line) {
			if strings.HasPrefix(flag, "amx") {
				fmt.Println("emulator: flag", flag)
			}
		}
	}
	args, err := os.ReadFile("/args")
	if err != nil {
		return err
	}
	test := exec.Command("/test", strings.Fields(string(args))...)
	test.Stdout, test.Stderr = os.Stdout, os.Stdout
	test.Env = []string{"HOME=/tmp", "TMPDIR=/tmp"}
	start := time.Now()
	err = test.Run()
	fmt.Printf("emulator: %v of the machine's time\n", time.Since(start).Round(time.Millisecond))
	return err
}

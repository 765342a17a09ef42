package peer

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/testenv/hosts"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// machineRole is what a process of this test is on its machine: "serve <address> <folder>" or
// "fetch <address> <folder> <identity>".
const machineRole = "MONOLITH_TEST_MACHINE_ROLE"

// slowly has the source need some seconds for all of it, so that a cut falls into the middle.
func slowly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isFile(r, ".tfrecord") {
			t := time.NewTimer(100 * time.Millisecond)
			defer t.Stop()
			<-t.C
		}
		h.ServeHTTP(w, r)
	})
}

func serveOnMachine(t *testing.T, address, dir string) {
	s := &Server{Open: func(Ask) (*os.Root, error) { return os.OpenRoot(dir) }, Log: slog.New(slog.DiscardHandler), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"})}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	t.Fatal((&http.Server{Handler: slowly(s.Handler()), ReadHeaderTimeout: time.Minute}).Serve(ln))
}

// fetchOnMachine is what model-sync does: it tries until all is there.
func fetchOnMachine(t *testing.T, address, dir, identity string) {
	into, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	c := client(t, func(conf *Config) {
		conf.Stall = 300 * time.Millisecond
		conf.Gave = func(_ Source, n int64, _ int) { fmt.Println("piece", n) }
	})
	try := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		offer, err := c.Find(ctx, ask, []string{identity}, []Source{{"a", address}})
		if err == nil {
			err = c.Fetch(ctx, into, offer)
		}
		return err
	}
	failures := 0
	wait.Until(t, "all is there", func() error {
		err := try()
		if err != nil {
			failures++
		}
		return err
	})
	if _, err := checkpoint.ReadShard(dir); err != nil {
		t.Fatal(err)
	}
	fmt.Println("whole after", failures, "failures")
}

// TestFetchBetweenMachines has two machines with disks of their own. The network between them is cut
// in the middle of a fetch, for longer than the fetch waits; then it goes on, and fetches no piece twice.
func TestFetchBetweenMachines(t *testing.T) {
	switch args := strings.Fields(os.Getenv(machineRole)); {
	case len(args) == 3:
		serveOnMachine(t, args[1], args[2])
	case len(args) == 4:
		fetchOnMachine(t, args[1], args[2], args[3])
		return
	}
	dir, identity := export(t, large)
	into := t.TempDir()
	m := hosts.New(t, 2)
	m[1].Disk(filepath.Dir(dir))
	run := func(h *hosts.Host, role string) *bufio.Scanner {
		cmd := h.Command(os.Args[0], "-test.run=^TestFetchBetweenMachines$", "-test.v")
		cmd.Env, cmd.Stderr = append(os.Environ(), machineRole+"="+role), os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(cmd) })
		return bufio.NewScanner(out)
	}
	address := m[0].Address + ":8600"
	served := run(m[0], "serve "+address+" "+dir)
	for served.Scan() && served.Text() != "listening" {
	}
	fetched := run(m[1], strings.Join([]string{"fetch", address, into, identity}, " "))
	pieces, sum, end, cut := 0, int64(0), "", false
	for fetched.Scan() && end == "" {
		var n int64
		if _, err := fmt.Sscanf(fetched.Text(), "piece %d", &n); err == nil {
			sum += n
			if n == pieceSize {
				pieces++
			}
		}
		if strings.HasPrefix(fetched.Text(), "whole") {
			end = fetched.Text()
		}
		if pieces == 3 && !cut {
			cut = true
			m[0].Cut()
			heal := time.AfterFunc(3*time.Second, m[0].Heal)
			t.Cleanup(func() { heal.Stop() })
		}
	}
	want, err := checkpoint.DirSize(dir)
	if err != nil {
		t.Fatal(err)
	}
	if end == "" || end == "whole after 0 failures" || sum != want {
		t.Errorf("it ended with %q; pieces of %d bytes were used, there are %d", end, sum, want)
	}
	same(t, dir, into)
}

func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

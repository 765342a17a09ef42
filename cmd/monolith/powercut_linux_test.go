package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/powercut"
)

// TestPowerCut takes the power away from everything while strangers write facts and
// ratings and a checkpoint is made every second. Whatever was acked is there afterwards,
// each rating is learnt once, and all of it comes up by itself. Where a name is on disk after
// a sync of its folder alone, acks are promised from 0.1 s on after the last block or segment
// was begun: the power goes at an instant at which the names of both logs are on disk, and
// takes those of everything else. MONOLITH_POWERCUTS sets how often; make soak does.
func TestPowerCut(t *testing.T) {
	cuts := 2
	if v := os.Getenv("MONOLITH_POWERCUTS"); v != "" {
		var err error
		if cuts, err = strconv.Atoi(v); err != nil {
			t.Fatalf("MONOLITH_POWERCUTS=%s: give a number", v)
		}
	}
	t.Run("journal", func(t *testing.T) {
		powerCuts(t, cuts, powercut.Journal, func([]string) bool { return true })
	})
	t.Run("strict", func(t *testing.T) {
		powerCuts(t, cuts, powercut.Strict, func(unsynced []string) bool {
			return !slices.ContainsFunc(unsynced, func(path string) bool {
				return strings.HasPrefix(path, "data/nats/") || strings.HasPrefix(path, "data/kafka/")
			})
		})
	})
}

// powerCuts takes the power away that often, each time once ready is true of the names that
// are not on disk.
func powerCuts(t *testing.T, cuts int, policy powercut.Policy, ready func(unsynced []string) bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	mountPoint, fs := powercut.ForTest(t, policy)
	cfg := opsConfig(filepath.Join(mountPoint, "data"))
	cfg.Checkpoints, cfg.Spans = time.Second, false
	archived := filepath.Join(mountPoint, "archive")
	acked := &ackedWrites{facts: map[uint64]string{}, ratings: map[[2]int64]string{}}
	for life := range cuts {
		c := startChild(t, upArgs(cfg)...)
		at := announced(t, c, cfg.Dir)
		archiver := startChild(t, "archive", "--dir", archived, "--follow", "--segment-events", "64", "--nats", at.NATS, "--bzid", "demo")
		stop := acked.write(t, at, cfg.Partitions)
		facts, ratings := acked.count()
		until(t, c, "acks", func() bool {
			f, r := acked.count()
			return f >= facts+100 && r >= ratings+200
		})
		timer := time.NewTimer(time.Duration(rng.IntN(2500)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-c.done:
			t.Fatalf("life %d ended by itself: %v\n%s", life, c.state, tail(c.err.String()))
		}
		residue := powercut.Residue(rng.IntN(2))
		t.Logf("cut %d, residue %d", life+1, residue)
		kill := func() {
			_ = c.cmd.Process.Kill()
			_ = archiver.cmd.Process.Kill()
		}
		taken := func(unsynced []string) bool {
			if !ready(unsynced) {
				return false
			}
			t.Logf("%d names are not on disk: %q", len(unsynced), unsynced)
			return true
		}
		if err := fs.CutOnce(taken, residue, rng, kill, func() { <-c.done; <-archiver.done }); err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := os.Stat(archived); err == nil {
			if code, out, stderr := opsTool("archive", "--dir", archived, "--verify"); code != exitOK {
				t.Errorf("the archive after cut %d: exit %d %s%s", life+1, code, out, stderr)
			}
		}
	}
	w := opsServe(t, cfg)
	acked.kept(t, w)
	if code, out, stderr := w.tool("archive", "--dir", archived); code != exitOK {
		t.Errorf("the archive does not go on: exit %d %s%s", code, out, stderr)
	}
	if code, out, stderr := opsTool("verify", "--dir", cfg.Dir); code != exitOK {
		t.Errorf("verify: exit %d %s%s", code, out, stderr)
	}
}

// TestPowerCutFindsLoss shows that the file system finds what it is for: nats-server as it
// comes acks messages that a cut then takes, and with fsync before each ack it loses none.
func TestPowerCutFindsLoss(t *testing.T) {
	bin := filepath.Join(oracle.Home(t), "bin", "nats-server")
	if _, err := os.Stat(bin); err != nil {
		oracle.Missing(t, "nats-server", "run make oracles")
	}
	for _, tc := range []struct {
		sync  string
		loses bool
	}{{"2m", true}, {"always", false}} {
		t.Run(tc.sync, func(t *testing.T) {
			dir, fs := powercut.ForTest(t, powercut.Journal)
			conf := filepath.Join(t.TempDir(), "nats.conf")
			text := fmt.Sprintf("listen: 127.0.0.1:-1\nports_file_dir: %q\njetstream { store_dir: %q, sync_interval: %s }\n", filepath.Dir(conf), filepath.Join(dir, "js"), tc.sync)
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			js, kill, wait := stockNATS(t, bin, conf)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
				t.Fatal(err)
			}
			const acked = 300
			for range acked {
				if _, err := js.Publish(t.Context(), "s", []byte("acked")); err != nil {
					t.Fatal(err)
				}
			}
			if err := fs.Cut(powercut.Nothing, nil, kill, wait); err != nil {
				t.Fatal(err)
			}
			js, kill, wait = stockNATS(t, bin, conf)
			left := uint64(0)
			if s, err := js.Stream(t.Context(), "S"); err == nil {
				left = s.CachedInfo().State.Msgs
			}
			kill()
			wait()
			t.Logf("sync_interval %s: %d of %d acked messages are left", tc.sync, left, acked)
			if lost := left < acked; lost != tc.loses {
				t.Errorf("sync_interval %s: %d of %d acked messages are left", tc.sync, left, acked)
			}
		})
	}
}

// stockNATS runs nats-server by conf, which puts its ports into a file beside it.
func stockNATS(t *testing.T, bin, conf string) (js jetstream.JetStream, kill, wait func()) {
	t.Helper()
	c := startProgram(t, bin, "-c", conf)
	var url string
	if !until(t, c, "the server's ports", func() bool {
		ports, err := filepath.Glob(filepath.Join(filepath.Dir(conf), fmt.Sprintf("*_%d.ports", c.cmd.Process.Pid)))
		if err != nil || len(ports) == 0 {
			return false
		}
		url = firstURL(ports[0])
		return url != ""
	}) {
		t.Fatalf("nats-server ended at once: %v\n%s", c.state, tail(c.err.String()))
	}
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return js, func() { _ = c.cmd.Process.Signal(syscall.SIGKILL) }, func() { <-c.done }
}

// firstURL is the first client URL of a ports file, empty while it is not whole.
func firstURL(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var ports struct{ Nats []string }
	if json.Unmarshal(raw, &ports) != nil || len(ports.Nats) == 0 {
		return ""
	}
	return ports.Nats[0]
}

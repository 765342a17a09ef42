package jetstream_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

const crashDir = "MONOLITH_TEST_CRASH_DIR"

func fact(reason string) *model.Event {
	return &model.Event{Body: &model.Event_UnloadAccepted{UnloadAccepted: &model.UnloadAccepted{Reason: reason}}}
}

func draft(aggregate, id string, expect uint64) bus.Draft {
	return bus.Draft{Subject: events.Join("crash", "model", aggregate), Event: fact(id), Expect: expect, Header: events.Header{ID: id}}
}

// bulky is a draft of some 200 KiB, of which no text exceeds its bound.
func bulky(aggregate, id string, expect uint64) bus.Draft {
	names := slices.Repeat([]string{strings.Repeat("x", 16<<10)}, 13)
	return bus.Draft{Subject: events.Join("crash", "training", aggregate), Expect: expect, Header: events.Header{ID: id}, Binary: true,
		Event: &training.Event{Body: &training.Event_ModelExported{ModelExported: &training.ModelExported{Version: 1, ModelDir: "/exports", SubModels: names}}}}
}

// crashChild is the process that is killed: a server, and callers that print what they
// are about to append and what was acked. It never returns by itself.
func crashChild() bool {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return false
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx := context.Background()
	s, err := natsserver.Start(natsserver.Config{Dir: dir})
	if err != nil {
		fail(err)
	}
	b, err := jetstream.Connect(ctx, jetstream.Config{Server: s})
	if err != nil {
		fail(err)
	}
	var mu sync.Mutex // one line at a time
	say := func(format string, v ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", v...)
	}
	var wg sync.WaitGroup
	for w := range 24 {
		wg.Go(func() {
			aggregate := fmt.Sprint("w", w)
			last, err := b.Log().LastOf(ctx, events.Join("crash", "model", aggregate))
			if err != nil {
				fail(err)
			}
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				var drafts []bus.Draft
				switch w % 3 {
				case 0:
					drafts = []bus.Draft{draft(aggregate, id, bus.Any)}
				case 1:
					drafts = []bus.Draft{draft(aggregate, id, last)}
				case 2: // whole or not at all
					drafts = []bus.Draft{draft(aggregate, id, last), draft(aggregate, id+"b", 0), draft(aggregate+"x", id+"c", bus.Any)}
				}
				say("try %s", id)
				seqs, err := b.Log().Append(ctx, drafts...)
				if err != nil {
					fail(err)
				}
				for j, seq := range seqs {
					say("ack %d %s", seq, drafts[j].Header.ID)
					if drafts[j].Subject == drafts[0].Subject {
						last = seq
					}
				}
			}
		})
	}
	wg.Wait()
	return true
}

// TestCrash kills the process at a random moment, again and again on the same folder:
// whatever was acked is there at its sequence, nothing is there twice, and a command of
// three events is there as three or not at all.
func TestCrash(t *testing.T) {
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[uint64]string{}
	for range rounds {
		crashOnce(t, dir, rng.IntN(2000), acked)
		s := startServer(t, dir, 0)
		b := connect(t, jetstream.Config{URL: s.URL()})
		checkLog(t, b, acked)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d events were acked over %d kills", len(acked), rounds)
}

// crashOnce kills the child after its first acks and a random number of lines more.
func crashOnce(t *testing.T, dir string, more int, acked map[uint64]string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(wait.Patience, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	before := len(acked)
	for n := 0; lines.Scan(); n++ {
		var seq uint64
		var id string
		if _, err := fmt.Sscanf(lines.Text(), "ack %d %s", &seq, &id); err == nil {
			if other, ok := acked[seq]; ok {
				t.Errorf("sequence %d was acked for %s and for %s", seq, other, id)
			}
			acked[seq] = id
		}
		if n == 200+more {
			if err := cmd.Process.Kill(); err != nil { // what is in the pipe is still read
				t.Fatal(err)
			}
		}
	}
	cmd.Wait() // killed: its error says so
	if stderr.Len() > 0 {
		t.Fatalf("the child failed: %s", stderr.String())
	}
	if len(acked) == before {
		t.Fatal("nothing was acked before the kill")
	}
}

func checkLog(t *testing.T, b bus.Bus, acked map[uint64]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	last, err := b.Log().Last(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	err = b.Log().Follow(ctx, 1, last, func(r events.Recorded) error {
		if r.Err != nil {
			t.Errorf("sequence %d cannot be decoded: %v", r.Seq, r.Err)
		}
		if other, ok := at[r.Header.ID]; ok {
			t.Errorf("%s stands at %d and at %d", r.Header.ID, other, r.Seq)
		}
		at[r.Header.ID] = r.Seq
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for seq, id := range acked {
		if at[id] != seq {
			t.Errorf("%s was acked at %d and stands at %d", id, seq, at[id])
		}
	}
	for id, seq := range at {
		if stem, ok := strings.CutSuffix(id, "b"); ok && (at[stem] != seq-1 || at[stem+"c"] != seq+1) {
			t.Errorf("command %s is in pieces: %d, %d, %d", stem, at[stem], seq, at[stem+"c"])
		}
	}
}

package heapfiles

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"sync"
	"time"
)

// look is how often the heap is looked at: no profile follows another sooner.
const look = time.Second

// Start writes profiles until stop is called, which writes a last one. A process whose environment
// names no file starts nothing. Its child processes are told to put their process id into the names of
// their files.
func (c Config) Start(log *slog.Logger) (stop func()) {
	if c.prefix == "" {
		return func() {}
	}
	if c.ratio < 1 {
		runtime.MemProfileRate = c.rate()
	}
	if err := os.Setenv(envUsePID, "1"); err != nil {
		log.Error("child processes write heap profiles over this one's", "err", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { c.run(ctx, log) })
	return func() {
		cancel()
		g.Wait()
	}
}

// reading is what the runtime says of the heap.
type reading struct {
	live      uint64 // bytes that the last collection found in use; the profile is of that moment, too
	allocated uint64 // bytes since the process began
	at        time.Time
}

func read() reading {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return reading{live: s[0].Value.Uint64(), allocated: s[1].Value.Uint64(), at: time.Now()}
}

// due says why a profile is due, "" if none is. peak is the most that lived when one was written.
func (c Config) due(peak uint64, last, now reading) string {
	switch {
	case c.grown > 0 && now.live >= peak+c.grown:
		return "in use"
	case c.allocated > 0 && now.allocated >= last.allocated+c.allocated:
		return "allocated"
	case c.every > 0 && now.at.Sub(last.at) >= c.every:
		return "time"
	}
	return ""
}

func (c Config) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, peak, number, failed := read(), uint64(0), 0, false
	write := func(why string, now reading) {
		number++
		path := fmt.Sprintf("%s.%04d.heap", c.prefix, number)
		if err := profile(path); err != nil {
			if !failed {
				log.Error("a heap profile is not written: mend the path in "+envPath+", or unset it", "path", path, "err", err)
			}
			failed = true
		} else {
			failed = false
			log.Info("heap profile", "path", path, "why", why, "live", now.live, "allocated", now.allocated)
		}
		last, peak = now, max(peak, now.live)
	}
	for {
		select {
		case <-ctx.Done():
			write("exit", read())
			return
		case <-tick.C:
		}
		now := read()
		if why := c.due(peak, last, now); why != "" {
			write(why, now)
		}
	}
}

func profile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = pprof.Lookup("heap").WriteTo(f, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

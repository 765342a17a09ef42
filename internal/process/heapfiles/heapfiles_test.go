package heapfiles

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func environment(all map[string]string) func(string) string {
	return func(name string) string { return all[name] }
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		env  map[string]string
		want Config
	}{
		{"nothing", nil, Config{ratio: 1}},
		{"no file", map[string]string{"HEAP_PROFILE_TIME_INTERVAL": "x"}, Config{ratio: 1}},
		{"the profiler's own intervals", map[string]string{envPath: "/tmp/p"}, Config{prefix: "/tmp/p", grown: 104857600, allocated: 1073741824, ratio: 1}},
		{"all", map[string]string{envPath: "/tmp/p", "HEAP_PROFILE_INUSE_INTERVAL": "5", "HEAP_PROFILE_ALLOCATION_INTERVAL": "0", "HEAP_PROFILE_TIME_INTERVAL": "60", envRatio: "0.5", envMmap: "false"},
			Config{prefix: "/tmp/p", grown: 5, every: time.Minute, ratio: 0.5}},
		{"a folder", map[string]string{envPath: dir}, Config{prefix: filepath.Join(dir, "hprof"), grown: 100 << 20, allocated: 1 << 30, ratio: 1}},
		{"a task of MLP", map[string]string{envPath: dir, "MLP_ROLE_INDEX": "3"}, Config{prefix: filepath.Join(dir, "hprof_3"), grown: 100 << 20, allocated: 1 << 30, ratio: 1}},
		{"a child", map[string]string{envPath: "/tmp/p", envUsePID: "1"}, Config{prefix: fmt.Sprintf("/tmp/p_%d", os.Getpid()), grown: 100 << 20, allocated: 1 << 30, ratio: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := Read(environment(tc.env)); err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
	for name, value := range map[string]string{"HEAP_PROFILE_INUSE_INTERVAL": "-1", "HEAP_PROFILE_ALLOCATION_INTERVAL": "1e9", "HEAP_PROFILE_TIME_INTERVAL": "1m", envRatio: "0", envMmap: "maybe"} {
		if _, err := Read(environment(map[string]string{envPath: "/tmp/p", name: value})); err == nil || !strings.Contains(err.Error(), name+"="+value) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if got, want := (Config{ratio: 0.25}).rate(), 4*runtime.MemProfileRate; got != want {
		t.Errorf("a quarter of the samples: one each %d bytes, want %d", got, want)
	}
}

func TestDue(t *testing.T) {
	at := time.Unix(1000, 0)
	last := reading{live: 100, allocated: 1000, at: at}
	for _, tc := range []struct {
		name string
		c    Config
		now  reading
		want string
	}{
		{"grown", Config{grown: 50}, reading{live: 150, allocated: 1000, at: at}, "in use"},
		{"below its peak", Config{grown: 50}, reading{live: 149, allocated: 1 << 40, at: at.Add(time.Hour)}, ""},
		{"allocated", Config{allocated: 10}, reading{live: 1, allocated: 1010, at: at}, "allocated"},
		{"time", Config{every: time.Minute}, reading{at: at.Add(time.Minute)}, "time"},
		{"too soon", Config{grown: 50, allocated: 10, every: time.Minute}, reading{live: 100, allocated: 1009, at: at.Add(59 * time.Second)}, ""},
		{"never", Config{}, reading{live: 1 << 40, allocated: 1 << 40, at: at.Add(time.Hour)}, ""},
	} {
		if got := tc.c.due(100, last, tc.now); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestFiles has a process write a profile a minute, and the last one as it ends.
func TestFiles(t *testing.T) {
	t.Setenv(envUsePID, "") // put back behind the test
	dir := filepath.Join(t.TempDir(), "not", "yet")
	synctest.Test(t, func(t *testing.T) {
		c, err := Read(environment(map[string]string{envPath: filepath.Join(dir, "p"), "HEAP_PROFILE_INUSE_INTERVAL": "0", "HEAP_PROFILE_ALLOCATION_INTERVAL": "0", "HEAP_PROFILE_TIME_INTERVAL": "60"}))
		if err != nil {
			t.Fatal(err)
		}
		stop := c.Start(slog.New(slog.DiscardHandler))
		time.Sleep(2*time.Minute + 30*time.Second)
		stop()
	})
	if os.Getenv(envUsePID) == "" {
		t.Error("a child process would write over its parent's files")
	}
	for i, name := range []string{"p.0001.heap", "p.0002.heap", "p.0003.heap"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("profile %d: %v", i+1, err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Contains(got, []byte("inuse_space")) {
			t.Errorf("profile %d: %d bytes, %v, none of the heap", i+1, len(got), err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 3 {
		t.Errorf("%d files for two minutes and an end", len(files))
	}
}

// TestUnwritable says once that profiles are not written, and disturbs nobody.
func TestUnwritable(t *testing.T) {
	t.Setenv(envUsePID, "")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		c := Config{prefix: filepath.Join(file, "p"), every: look, ratio: 1}
		stop := c.Start(slog.New(slog.NewTextHandler(&said, nil)))
		time.Sleep(10 * look)
		stop()
	})
	if n := strings.Count(said.String(), "mend the path in HEAPPROFILE"); n != 1 {
		t.Errorf("said %d times: %s", n, said.String())
	}
}

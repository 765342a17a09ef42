package resources

import (
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// tree makes a root folder of "path: content" pairs.
func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for path, text := range files {
		out[path] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return out
}

func env(pairs ...string) func(string) string {
	return func(key string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		return ""
	}
}

const meminfo = "MemTotal:       8000 kB\nMemFree:         100 kB\nMemAvailable:   6000 kB\nBuffers: 1 kB"

func TestMemory(t *testing.T) {
	const kib = 1 << 10
	v1 := "sys/fs/cgroup/memory/"
	v2 := "sys/fs/cgroup/"
	for _, tc := range []struct {
		name  string
		files map[string]string
		env   func(string) string
		want  Memory
	}{
		{"only the machine", nil, nil, Memory{8000 * kib, 6000 * kib}},
		{"version 1, a container's own mount", map[string]string{
			"proc/self/cgroup":            "9:memory:/kubepods/pod1\n5:cpu,cpuacct:/kubepods/pod1",
			v1 + "memory.limit_in_bytes":  "2048000",
			v1 + "memory.usage_in_bytes":  "1024000",
			v1 + "memory.stat":            "cache 9\ntotal_inactive_file 24000",
			v1 + "memory.oom_control":     "x",
			"sys/fs/cgroup/memory.max":    "5", // not of this version
			"sys/fs/cgroup/memory.events": "",
		}, nil, Memory{2048000, 1048000}},
		{"version 1, on the host", map[string]string{
			"proc/self/cgroup":                    "9:memory:/kubepods/pod1",
			v1 + "memory.limit_in_bytes":          "9223372036854771712",
			v1 + "memory.usage_in_bytes":          "77777777",
			v1 + "kubepods/memory.limit_in_bytes": "3000000", v1 + "kubepods/memory.usage_in_bytes": "2900000",
			v1 + "kubepods/pod1/memory.limit_in_bytes": "2000000", v1 + "kubepods/pod1/memory.usage_in_bytes": "500000",
		}, nil, Memory{2000000, 100000}}, // the pod may have 2 MB, but the node's pods together have 100 kB left
		{"version 2", map[string]string{
			"proc/self/cgroup":            "0::/app.slice/job",
			v2 + "app.slice/memory.max":   "4096000",
			v2 + "app.slice/job/dummy":    "",
			v2 + "app.slice/memory.stat":  "anon 1\ninactive_file 96000\nactive_file 7",
			v2 + "cgroup.controllers":     "cpu memory",
			v2 + "app.slice/memory.low":   "0",
			v2 + "app.slice/cgroup.procs": "1", v2 + "app.slice/memory.current": "1096000",
			v2 + "app.slice/job/memory.max": "max", v2 + "app.slice/job/memory.current": "1000",
		}, nil, Memory{4096000, 3096000}},
		{"version 2, inside a namespace", map[string]string{
			"proc/self/cgroup": "0::/", v2 + "memory.max": "1000000", v2 + "memory.current": "1200000",
		}, nil, Memory{1000000, 0}},
		{"no limit but the platform's", map[string]string{
			"proc/self/cgroup": "0::/", v2 + "memory.max": "max", v2 + "memory.current": "200000",
		}, env("MY_MEM_LIMIT", "1000000"), Memory{1000000, 800000}},
		{"a limit beyond the machine", map[string]string{
			"proc/self/cgroup": "0::/", v2 + "memory.max": "99999999999", v2 + "memory.current": "0",
		}, nil, Memory{8000 * kib, 6000 * kib}},
		{"a group that climbs out", map[string]string{
			"proc/self/cgroup": "0::/../../etc", v2 + "memory.max": "500", v2 + "memory.current": "1",
		}, nil, Memory{500, 499}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := tree(tc.files)
			files["proc/meminfo"] = &fstest.MapFile{Data: []byte(meminfo)}
			if tc.env == nil {
				tc.env = env()
			}
			got, err := New(files, tc.env).Memory()
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

// Headroom counts all that the kernel reclaims as left, and nothing else.
func TestGroupHeadroom(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"version 1": {
			"proc/self/cgroup":                           "9:memory:/",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000", "sys/fs/cgroup/memory/memory.usage_in_bytes": "990000",
			"sys/fs/cgroup/memory/memory.stat": "active_file 1\ntotal_inactive_anon 9\ntotal_inactive_file 100000\ntotal_active_file 500000",
		},
		"version 2": {
			"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1000000", "sys/fs/cgroup/memory.current": "990000",
			"sys/fs/cgroup/memory.stat": "anon 300000\nshmem 5\ninactive_file 100000\nactive_file 400000\nslab_reclaimable 100000\nslab_unreclaimable 7",
		},
	} {
		p := New(tree(files), env())
		if m, err := p.GroupMemory(); err != nil || m != (Memory{1000000, 110000}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if m, err := p.GroupHeadroom(); err != nil || m != (Memory{1000000, 610000}) {
			t.Errorf("%s: headroom %+v, %v", name, m, err)
		}
	}
}

func TestMemoryUnknown(t *testing.T) {
	p := New(fstest.MapFS{}, env())
	if _, err := p.Memory(); !errors.Is(err, ErrUnknown) {
		t.Errorf("machine: %v", err)
	}
	if _, err := p.GroupMemory(); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "MY_MEM_LIMIT") {
		t.Errorf("group: %v", err)
	}
	old := New(tree(map[string]string{"proc/meminfo": "MemTotal: 10 kB\nMemFree: 1 kB\nBuffers: 2 kB\nCached: 3 kB"}), env())
	if m, err := old.MachineMemory(); err != nil || m.Available != 6<<10 {
		t.Errorf("before MemAvailable: %+v, %v", m, err)
	}
	if _, err := New(tree(map[string]string{"proc/meminfo": "nonsense"}), env()).MachineMemory(); !errors.Is(err, ErrUnknown) {
		t.Errorf("nonsense: %v", err)
	}
}

func TestCPUs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		env   func(string) string
		want  float64
	}{
		{"version 1", map[string]string{"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, env("MY_CPU_LIMIT", "9"), 1.5},
		{"version 1 without a quota", map[string]string{"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, env("MY_CPU_LIMIT", "9"), 9},
		{"version 1 with a period of zero", map[string]string{"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "0"}, env("MY_CPU_LIMIT", "4"), 4},
		{"version 2, the tightest around", map[string]string{"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "200000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, env(), 2},
		{"nothing", nil, env("MY_CPU_LIMIT", "junk"), float64(runtime.NumCPU())},
	} {
		if got := New(tree(tc.files), tc.env).CPUs(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestUsage(t *testing.T) {
	for name, at := range map[string]func(fstest.MapFS, string, string){
		"version 1": func(f fstest.MapFS, ns, _ string) {
			f["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("5:cpu,cpuacct:/\n")}
			f["sys/fs/cgroup/cpuacct/cpuacct.usage"] = &fstest.MapFile{Data: []byte(ns)}
		},
		"version 2": func(f fstest.MapFS, _, us string) {
			f["sys/fs/cgroup/cpu.stat"] = &fstest.MapFile{Data: []byte("nr_periods 3\nusage_usec " + us + "\nuser_usec 1")}
		},
	} {
		files := fstest.MapFS{"proc/stat": {Data: []byte("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 1 1 1")}}
		at(files, "1000000000", "1000000")
		now := time.Unix(100, 0)
		u := NewUsage(New(files, env()), func() time.Time { return now })
		if _, ok := u.Group(); ok {
			t.Errorf("%s: a figure although no time has passed", name)
		}
		now = now.Add(2 * time.Second)
		at(files, "4000000000", "4000000")
		files["proc/stat"] = &fstest.MapFile{Data: []byte("cpu  30 0 15 120 30 0 5 0 99 99")}
		if got, ok := u.Group(); !ok || got != 1.5 {
			t.Errorf("%s: %v, %v: 3 s of work in 2 s", name, got, ok)
		}
		// since the start: 20+5+5 busy of 20+5+50+20+5
		if got, ok := u.Machine(); !ok || got != 30 {
			t.Errorf("%s: machine %v, %v", name, got, ok)
		}
		now = now.Add(time.Second)
		at(files, "5", "5") // a new group
		if got, ok := u.Group(); ok {
			t.Errorf("%s: %v for a clock that went back", name, got)
		}
	}
	if _, ok := NewUsage(New(fstest.MapFS{}, env()), time.Now).Group(); ok {
		t.Error("usage of no group")
	}
}

// The original's own test: bounds on the machine it runs on.
func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED, /proc is of Linux: the figures of this machine were not checked")
	}
	p := New(os.DirFS("/"), os.Getenv) // this machine
	m, err := p.MachineMemory()
	if err != nil || m.Available <= 0 || m.Available >= m.Total {
		t.Errorf("%+v, %v", m, err)
	}
	if both, err := p.Memory(); err != nil || both.Available < 0 || both.Available > m.Total || both.Total > m.Total {
		t.Errorf("%+v of %+v, %v", both, m, err)
	}
	if n := p.CPUs(); n <= 0 || n > 1<<16 {
		t.Errorf("%v processors", n)
	}
	u := NewUsage(p, time.Now)
	sum := 0.0
	for deadline := time.Now().Add(wait.Patience); time.Now().Before(deadline); {
		for i := range 1 << 20 {
			sum += math.Sqrt(float64(i))
		}
		if percent, ok := u.Machine(); ok {
			if percent < 0 || percent > 100 {
				t.Errorf("%v per cent", percent)
			}
			return
		}
	}
	t.Errorf("no figure within %v of work (%v)", wait.Patience, sum)
}

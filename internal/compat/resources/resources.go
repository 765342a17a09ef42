// Package resources measures what a machine, or the control group (version 1 or 2) that
// this process runs in, has and uses of memory and processors.
package resources

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Environment variables by which a platform states limits that no control group shows.
const (
	memLimitEnv = "MY_MEM_LIMIT" // bytes
	cpuLimitEnv = "MY_CPU_LIMIT" // processors
)

// unlimited is what a control group of version 1 says for "no limit", rounded down to
// whatever page size.
const unlimited = math.MaxInt64 &^ (1<<20 - 1)

// Probe reads the figures anew with each call. It is safe for concurrent use.
type Probe struct {
	files  fs.FS
	getenv func(string) string
}

// New looks at files, the root folder, and the environment.
func New(files fs.FS, getenv func(string) string) *Probe { return &Probe{files: files, getenv: getenv} }

// ErrUnknown is returned for a figure that the machine does not tell.
var ErrUnknown = errors.New("not known on this machine")

// Memory is in bytes.
type Memory struct{ Total, Available int64 }

// MachineMemory is what the whole machine has, and could give to a new process without
// swapping.
func (p *Probe) MachineMemory() (Memory, error) {
	raw, err := fs.ReadFile(p.files, "proc/meminfo")
	if err != nil {
		return Memory{}, fmt.Errorf("memory: %w: %w", ErrUnknown, err)
	}
	figures := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if kib, err := strconv.ParseInt(f[0], 10, 64); err == nil && kib >= 0 && kib < 1<<52 {
				figures[name] = kib << 10
			}
		}
	}
	m := Memory{Total: figures["MemTotal"], Available: figures["MemAvailable"]}
	if _, known := figures["MemAvailable"]; !known { // before Linux 3.14
		m.Available = figures["MemFree"] + figures["Buffers"] + figures["Cached"]
	}
	if m.Total == 0 {
		return Memory{}, fmt.Errorf("memory: %w: /proc/meminfo names no MemTotal", ErrUnknown)
	}
	return m, nil
}

// GroupMemory is the tightest limit of the control group and those around it, and what
// is left below it; file cache that the kernel would drop counts as left. Without a
// limit, that of MY_MEM_LIMIT stands; without that either it is ErrUnknown.
func (p *Probe) GroupMemory() (Memory, error) { return p.groupMemory(1) }

// GroupHeadroom is GroupMemory where all counts as left that the kernel would reclaim before it kills anybody: file
// cache that was read again, too, and slabs that can be dropped.
func (p *Probe) GroupHeadroom() (Memory, error) { return p.groupMemory(math.MaxInt) }

// groupMemory counts so many of the kinds of cache as left.
func (p *Probe) groupMemory(kinds int) (Memory, error) {
	tightest := Memory{Total: math.MaxInt64, Available: math.MaxInt64}
	files := memoryV1
	dirs := p.dirs("memory", "sys/fs/cgroup/memory")
	if dirs == nil {
		files, dirs = memoryV2, p.dirs("", "sys/fs/cgroup")
	}
	var used int64
	for i, dir := range dirs {
		usage, ok := p.number(path.Join(dir, files.usage))
		if !ok {
			continue // a root group counts nothing
		}
		for _, cache := range files.caches[:min(kinds, len(files.caches))] {
			usage -= min(usage, p.stat(path.Join(dir, "memory.stat"), cache))
		}
		if i == 0 {
			used = usage
		}
		limit, ok := p.number(path.Join(dir, files.limit)) // version 2 says "max"
		if !ok || limit <= 0 || limit >= unlimited {
			continue
		}
		tightest.Total = min(tightest.Total, limit)
		tightest.Available = min(tightest.Available, max(0, limit-usage))
	}
	if tightest.Total < math.MaxInt64 {
		return tightest, nil
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(p.getenv(memLimitEnv)), 10, 64); err == nil && limit > 0 {
		return Memory{Total: limit, Available: max(0, limit-used)}, nil
	}
	return Memory{}, fmt.Errorf("memory of the control group: %w: it has no limit, and %s is not set", ErrUnknown, memLimitEnv)
}

// Memory is the machine's, or the control group's where that allows less.
func (p *Probe) Memory() (Memory, error) {
	machine, err := p.MachineMemory()
	group, groupErr := p.GroupMemory()
	switch {
	case groupErr != nil:
		return machine, err
	case err != nil:
		return group, nil
	}
	return Memory{Total: min(machine.Total, group.Total), Available: min(machine.Available, group.Available)}, nil
}

// CPUs is how many processors the control group may use at a time, such as 1.5: its
// quota, or MY_CPU_LIMIT without one, or as many as the machine has.
func (p *Probe) CPUs() float64 {
	limit := math.Inf(1)
	if dirs := p.dirs("cpu", "sys/fs/cgroup/cpu"); dirs != nil {
		for _, dir := range dirs {
			quota, ok := p.number(path.Join(dir, "cpu.cfs_quota_us")) // -1: none
			period, alsoOK := p.number(path.Join(dir, "cpu.cfs_period_us"))
			if ok && alsoOK && quota > 0 && period > 0 {
				limit = min(limit, float64(quota)/float64(period))
			}
		}
	} else {
		for _, dir := range p.dirs("", "sys/fs/cgroup") {
			f := strings.Fields(p.text(path.Join(dir, "cpu.max"))) // "max 100000" without a limit
			if len(f) != 2 {
				continue
			}
			quota, err := strconv.ParseInt(f[0], 10, 64)
			period, alsoErr := strconv.ParseInt(f[1], 10, 64)
			if err == nil && alsoErr == nil && quota > 0 && period > 0 {
				limit = min(limit, float64(quota)/float64(period))
			}
		}
	}
	if !math.IsInf(limit, 1) {
		return limit
	}
	if n, err := strconv.ParseFloat(strings.TrimSpace(p.getenv(cpuLimitEnv)), 64); err == nil && n > 0 && n < 1<<20 {
		return n
	}
	return float64(runtime.NumCPU())
}

// memoryFiles are the names under which a version keeps its figures.
type memoryFiles struct {
	limit, usage string
	caches       []string // that the kernel reclaims, the easiest first
}

var (
	memoryV1 = memoryFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}}
	memoryV2 = memoryFiles{"memory.max", "memory.current", []string{"inactive_file", "active_file", "slab_reclaimable"}}
)

// dirs are the folders of the process's control group below mount and of those around it,
// innermost first; nil where mount has none. controller is "" for version 2. A container
// sees its own group as the mount itself while /proc may name it as the host does, so
// what is not there is left out.
func (p *Probe) dirs(controller, mount string) []string {
	if info, err := fs.Stat(p.files, mount); err != nil || !info.IsDir() {
		return nil
	}
	var dirs []string
	for at := p.group(controller); at != "" && at != "."; at = path.Dir(at) {
		if dir := path.Join(mount, at); fs.ValidPath(dir) {
			if _, err := fs.Stat(p.files, dir); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	return append(dirs, mount)
}

// group is the process's control group, without slashes around; "" for the root.
func (p *Probe) group(controller string) string {
	for line := range strings.Lines(p.text("proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // id:controller,controller:/path
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if c == controller && (controller != "" || f[0] == "0") {
				return strings.Trim(path.Clean("/"+f[2]), "/")
			}
		}
	}
	return ""
}

func (p *Probe) text(file string) string {
	raw, err := fs.ReadFile(p.files, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func (p *Probe) number(file string) (int64, bool) {
	text := p.text(file)
	n, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) { // version 1 may print 2^64-1 for no limit
		return math.MaxInt64, true
	}
	return n, err == nil
}

// stat is one line of a file of "name value" lines, 0 where it is not there.
func (p *Probe) stat(file, name string) int64 {
	for line := range strings.Lines(p.text(file)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			if err == nil && n >= 0 {
				return n
			}
		}
	}
	return 0
}

package tfssupervisor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/monolith-go/monolith/events/replica"
)

func TestFreeMemory(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	const meminfo = "MemTotal:       8000 kB\nMemAvailable:    4000 kB\nBuffers: 1 kB\n"
	for name, tc := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"machine":              {fstest.MapFS{"proc/meminfo": file(meminfo)}, 4000 << 10},
		"group allows less":    {fstest.MapFS{"proc/meminfo": file(meminfo), "sys/fs/cgroup/memory.max": file("3000000\n"), "sys/fs/cgroup/memory.current": file("1000000\n")}, 2000000},
		"group allows more":    {fstest.MapFS{"proc/meminfo": file(meminfo), "sys/fs/cgroup/memory.max": file("30000000\n"), "sys/fs/cgroup/memory.current": file("1000000\n")}, 4000 << 10},
		"group without limit":  {fstest.MapFS{"proc/meminfo": file(meminfo), "sys/fs/cgroup/memory.max": file("max\n"), "sys/fs/cgroup/memory.current": file("1\n")}, 4000 << 10},
		"group over its limit": {fstest.MapFS{"proc/meminfo": file(meminfo), "sys/fs/cgroup/memory.max": file("5\n"), "sys/fs/cgroup/memory.current": file("9\n")}, 0},
		"nothing to read":      {fstest.MapFS{}, 0},
		"nonsense":             {fstest.MapFS{"proc/meminfo": file("MemAvailable: lots kB")}, 0},
	} {
		g := gauge{files: tc.files}
		if got := g.free(); got != tc.want {
			t.Errorf("%s: %d bytes free, want %d", name, got, tc.want)
		}
	}
	g := gauge{files: os.DirFS("/")}
	now := time.Now()
	first := g.read(now)
	if first.GetMemory() <= 0 || first.GetCpu() < 1 || first.GetWorkLoad() < 0 {
		t.Errorf("this machine: %v", first)
	}
	if g.read(now.Add(resourceEvery/2)) != first || g.read(now.Add(resourceEvery)) == first {
		t.Error("measurements are not repeated for their time")
	}
}

func TestRole(t *testing.T) {
	for sub, want := range map[string]struct {
		kind string
		task int32
		ok   bool
	}{"entry": {"entry", 0, true}, "ps_3": {"ps", 3, true}, "dense_0": {"dense", 0, true}, "dense": {"dense", 0, true}, "ps_x": {}, "ps_-1": {}, "other": {}, "": {}} {
		kind, task, ok := role(sub)
		if ok != want.ok || ok && (kind != want.kind || task != want.task) {
			t.Errorf("%q is %s %d %v", sub, kind, task, ok)
		}
	}
}

func TestRankPrefersWhatAnswers(t *testing.T) {
	order := []struct {
		st     replica.State
		wanted bool
	}{
		{replica.State_UNKNOWN, true}, {replica.State_END, false}, {replica.State_END, true}, {replica.State_UNLOADING, false}, {replica.State_LOADING, false},
		{replica.State_LOADING, true}, {replica.State_AVAILABLE, false}, {replica.State_AVAILABLE, true},
	}
	if !slices.IsSortedFunc(order, func(a, b struct {
		st     replica.State
		wanted bool
	}) int {
		return rank(a.st, a.wanted) - rank(b.st, b.wanted)
	}) {
		t.Error("the order of states has changed")
	}
}

func TestArgs(t *testing.T) {
	if got, want := args([]string{"a", "b"}, "/f"), []string{"a", "b", "--addr-file", "/f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := args([]string{"a", "--x={addr_file}", "b"}, "/f"), []string{"a", "--x=/f", "b"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAddrFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "addr.json")
	if err := WriteAddrFile(path, "h:1", "h:2", "unix:///x"); err != nil {
		t.Fatal(err)
	}
	if err := WriteAddrFile(path, "h:3", "h:4", ""); err != nil { // over the old one
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseAddrFile(raw); err != nil || got != (addrFile{PID: os.Getpid(), GRPC: "h:3", HTTP: "h:4"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v left behind, %v", left, err)
	}
	if err := WriteAddrFile(filepath.Join(path, "no"), "h:1", "h:2", ""); err == nil {
		t.Error("a folder that is none passes")
	}
}

func FuzzAddrFile(f *testing.F) {
	for _, s := range []string{`{"pid":1,"grpc":"h:1","http":"h:2","rows":"unix:///x"}`, `{"grpc":"h"}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if a, err := parseAddrFile(raw); err == nil && (a.GRPC == "" || a.HTTP == "") {
			t.Fatalf("%q is %+v", raw, a)
		}
	})
}

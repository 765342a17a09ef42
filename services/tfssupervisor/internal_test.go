package tfssupervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/services"
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
	if first.GetMemory() <= 0 || first.GetCpu() != -1 || first.GetNetwork() != -1 || first.GetWorkLoad() < 0 {
		t.Errorf("this machine: %v", first)
	}
	if g.read(now.Add(resourceEvery/2)) != first || g.read(now.Add(resourceEvery)) == first {
		t.Error("measurements are not repeated for their time")
	}
}

// What is not measured is -1, as agents have always told it; processors are measured by use.
func TestProcessorsInUse(t *testing.T) {
	now := time.Now()
	g := gauge{files: os.DirFS("/")}
	if cpu := g.read(now).GetCpu(); cpu != -1 {
		t.Errorf("%v processors are busy before any time has passed", cpu)
	}
	for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); { // keeps one busy
	}
	cpu := g.read(now.Add(cpuEvery)).GetCpu()
	if cpu < 0 || cpu > 2*float64(runtime.NumCPU()) || cpu != math.Round(2*cpu)/2 {
		t.Errorf("%v processors are busy", cpu)
	}
	nothing := gauge{files: fstest.MapFS{}}
	nothing.read(now)
	if r := nothing.read(now.Add(cpuEvery)); r.GetCpu() != -1 || r.GetNetwork() != -1 {
		t.Errorf("a machine that tells nothing: %v", r)
	}
}

func TestPolicies(t *testing.T) {
	for text, want := range map[string]policy{"": {}, "latest": {}, "latest_once": {once: true}, "all": {all: true}, "specific": {version: 1}, "specific:1622716114": {version: 1622716114}} {
		if got, err := policyOf(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
		if got, want := moves(text), text == "" || text == "latest" || text == "all"; got != want {
			t.Errorf("%q moves: %v", text, got)
		}
	}
	for _, text := range []string{"specific:", "specific:0", "specific:x", "all:3", "newest"} {
		if _, err := policyOf(text); err == nil || !strings.Contains(err.Error(), "is not allowed") || moves(text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Two agents of one layout, started with a container's name and nothing else, are two
// replicas; a pod's name draws the number that agents have always drawn from it.
func TestReplicaNumbers(t *testing.T) {
	pod := ""
	number := func(container string, replica int) int32 {
		c := Config{Container: container, Replica: replica, Getenv: func(name string) string {
			if name == "MY_POD_NAME" {
				return pod
			}
			return ""
		}}
		c = c.withDefaults()
		return c.replica()
	}
	if number("uni-0", -1) == number("uni-1", -1) || number("uni-0", 4) != 4 {
		t.Error("numbers are not drawn from the container's id")
	}
	alone := number("uni-0", -1)
	pod = "pod-7"
	if n := number("uni-0", -1); n == alone || n != number("uni-1", -1) {
		t.Error("the pod's name does not decide")
	}
}

// A server that listens everywhere is told of by an address that others can dial.
func TestLocalAddress(t *testing.T) {
	resolves := func(ips ...string) func(context.Context, string, string) ([]net.IP, error) {
		return func(context.Context, string, string) ([]net.IP, error) {
			var out []net.IP
			for _, ip := range ips {
				out = append(out, net.ParseIP(ip))
			}
			if len(out) == 0 {
				return nil, errors.New("no such host")
			}
			return out, nil
		}
	}
	interfaces := func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("127.0.0.1")}, &net.IPNet{IP: net.ParseIP("fd00::1")}, &net.IPNet{IP: net.ParseIP("10.0.0.7")}}, nil
	}
	none := func() ([]net.Addr, error) { return nil, errors.New("not permitted") }
	for _, tc := range []struct{ got, want string }{
		{localIP(t.Context(), resolves("127.0.1.1", "10.0.0.9"), interfaces), "10.0.0.9"},
		{localIP(t.Context(), resolves("127.0.1.1"), interfaces), "10.0.0.7"},
		{localIP(t.Context(), resolves(), interfaces), "10.0.0.7"},
		{localIP(t.Context(), resolves(), none), ""},
	} {
		if tc.got != tc.want {
			t.Errorf("local address %q, want %q", tc.got, tc.want)
		}
	}
	c := Config{Container: "c", HostIP: "10.0.0.7"}
	if at := c.addresses(&Server{GRPCAddr: "[::]:8500", HTTPAddr: ":8501", RowsAddr: "0.0.0.0:7000"}); at.grpc != "10.0.0.7:8500" || at.http != "10.0.0.7:8501" || at.rows != "10.0.0.7:7000" {
		t.Errorf("addresses %+v", at)
	}
}

func TestLogFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	for life := range 2 {
		l, err := openLog(path, 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := fmt.Fprintf(l, "life%d-%d\n", life, i); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{path: "life1-2\n", path + ".1": "life1-1\n", path + ".2": "life1-0\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 3 {
		t.Errorf("%v, %v; want three files", left, err)
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
	if err := WriteAddrFile(path, "h:1", "h:2", "unix:///x", true); err != nil {
		t.Fatal(err)
	}
	if err := WriteAddrFile(path, "h:3", "h:4", "", false); err != nil { // over the old one
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
	if err := WriteAddrFile(filepath.Join(path, "no"), "h:1", "h:2", "", false); err == nil {
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

// A configuration that cannot be loaded is sent again and again: the log says so once
// until the reason changes, and health while it lasts.
func TestLoadingThatFailsIsToldOnce(t *testing.T) {
	log, well := &strings.Builder{}, health.New()
	in := &instance{s: &Supervisor{env: services.Env{Log: slog.New(slog.NewTextHandler(log, nil)), Health: well}}}
	answered := func(err error) { in.answered(t.Context(), answer{err, func() {}}) }
	warned := func(want int, problem string) {
		t.Helper()
		if n := strings.Count(log.String(), "level=WARN"); n != want {
			t.Errorf("%d warnings, want %d:\n%s", n, want, log)
		}
		if got := well.Summary(); got != problem {
			t.Errorf("the problem is %q, want %q", got, problem)
		}
	}
	damaged, missing := status.Error(codes.Internal, "damaged"), status.Error(codes.NotFound, "missing")
	for range 3 {
		answered(damaged)
	}
	warned(1, "loading: "+damaged.Error())
	answered(missing)
	answered(missing)
	warned(2, "loading: "+missing.Error())
	answered(status.Error(codes.Unavailable, "it says nothing of what it has loaded"))
	warned(2, "loading: "+missing.Error())
	answered(nil)
	answered(nil)
	warned(2, "")
	if n := strings.Count(log.String(), "has loaded everything"); n != 1 {
		t.Errorf("the end is told %d times:\n%s", n, log)
	}
	answered(missing)
	warned(3, "loading: "+missing.Error())
}

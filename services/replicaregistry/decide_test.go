package replicaregistry

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

func box(id string) *container.Container {
	return &container.Container{Id: id, Kind: "serving", Shard: -1, GrpcAddress: id + ":1"}
}

func rep(model, kind string, task, number int32, on string, stat replica.State) *replica.Replica {
	return &replica.Replica{ModelName: model, ServerType: kind, Task: task, Replica: number, Container: on, GrpcAddress: on + ":1", Stat: stat, Version: 1}
}

func beat(c *container.Container, rs ...*replica.Replica) *replica.Heartbeat {
	return &replica.Heartbeat{Container: c, Replicas: rs}
}

// world applies drafts to a fleet as the log would.
type world struct {
	t   *testing.T
	f   fleet.State
	seq uint64
}

func (w *world) apply(drafts []bus.Draft) {
	w.t.Helper()
	last := map[events.Subject]bool{}
	for _, d := range drafts {
		p, err := d.Subject.Parse()
		if err != nil {
			w.t.Fatal(err)
		}
		expect := w.f.Containers[p.Aggregate].Seq
		if p.Context == "replica" {
			expect = w.f.Replicas[p.Aggregate].Seq
		}
		if !last[d.Subject] && d.Expect != expect {
			w.t.Fatalf("draft on %s is guarded by %d, its last is %d", d.Subject, d.Expect, expect)
		}
		last[d.Subject] = true
		if err := d.Event.(interface{ Validate(string) error }).Validate(p.Aggregate); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, d := range drafts {
		w.seq++
		w.f = fleet.Fold(w.f, events.Recorded{Seq: w.seq, Subject: d.Subject, Event: d.Event})
	}
}

// tell writes drafts as "type aggregate" lines.
func tell(drafts []bus.Draft) string {
	var lines []string
	for _, d := range drafts {
		p, _ := d.Subject.Parse()
		m := d.Event.ProtoReflect()
		lines = append(lines, m.WhichOneof(m.Descriptor().Oneofs().Get(0)).JSONName()+" "+p.Aggregate)
	}
	return strings.Join(lines, ", ")
}

func memory(bytes int64) *container.ResourceReported {
	return &container.ResourceReported{Memory: bytes, Cpu: -1, Network: -1, WorkLoad: -1}
}

// One life of two containers, heartbeat by heartbeat: what each of them changes.
func TestDecideHeartbeat(t *testing.T) {
	w := &world{t: t, f: fleet.New()}
	with := func(hb *replica.Heartbeat, r *container.ResourceReported) *replica.Heartbeat {
		hb.Resource = r
		return hb
	}
	moved := box("a")
	moved.GrpcAddress = "elsewhere:1"
	for i, step := range []struct {
		hb       *replica.Heartbeat
		want     string
		contests int
	}{
		{with(beat(box("a")), memory(1000)), "reported a, resourceReported a", 0},
		{with(beat(box("a")), memory(1000)), "", 0},
		{with(beat(box("a")), memory(901)), "", 0},
		{with(beat(box("a")), memory(900)), "resourceReported a", 0},
		{beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_LOADING)), "registered m/ps:0/0", 0},
		{beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_LOADING)), "", 0},
		{beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_AVAILABLE)), "stateChanged m/ps:0/0", 0},
		{beat(box("b"), rep("m", "ps", 0, 0, "b", replica.State_AVAILABLE)), "reported b", 1},
		{beat(box("b"), rep("m", "ps", 0, 1, "b", replica.State_AVAILABLE), rep("m", "entry", 0, 0, "b", replica.State_LOADING)), "registered m/entry:0/0, registered m/ps:0/1", 0},
		{beat(moved, rep("m", "ps", 0, 0, "a", replica.State_AVAILABLE)), "reported a", 0},
		{beat(moved), "lost m/ps:0/0", 0},
		{beat(moved), "", 0},
		{beat(box("b"), rep("m", "ps", 0, 0, "b", replica.State_AVAILABLE)), "registered m/ps:0/0, lost m/entry:0/0, lost m/ps:0/1", 0},
		{&replica.Heartbeat{Container: box("b"), Leaving: true}, "lost m/ps:0/0, lost b", 0},
		{&replica.Heartbeat{Container: box("b"), Leaving: true}, "", 0},
		{with(beat(box("b")), memory(5)), "reported b, resourceReported b", 0},
	} {
		if refusal := check(step.hb); refusal != nil {
			t.Fatalf("step %d: %v", i, refusal)
		}
		drafts, contests := decideHeartbeat("x", w.f, step.hb)
		if got := tell(drafts); got != step.want || len(contests) != step.contests {
			t.Fatalf("step %d: %q and %d contests, want %q and %d", i, got, len(contests), step.want, step.contests)
		}
		w.apply(drafts)
	}
}

func TestDecideLost(t *testing.T) {
	w := &world{t: t, f: fleet.New()}
	for _, hb := range []*replica.Heartbeat{
		beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_AVAILABLE), rep("m", "ps", 1, 0, "a", replica.State_LOADING)),
		beat(box("b"), rep("m", "ps", 0, 1, "b", replica.State_AVAILABLE)),
	} {
		drafts, _ := decideHeartbeat("x", w.f, hb)
		w.apply(drafts)
	}
	if got := fmt.Sprint(members(w.f)); got != "[a b]" {
		t.Errorf("members %s", got)
	}
	drafts := decideLost("x", w.f, "a", &container.Lost{Reason: "gone"})
	if got := tell(drafts); got != "lost m/ps:0/0, lost m/ps:1/0, lost a" {
		t.Errorf("lost: %s", got)
	}
	w.apply(drafts)
	if drafts := decideLost("x", w.f, "a", &container.Lost{Reason: "gone"}); len(drafts) != 0 {
		t.Errorf("lost twice: %s", tell(drafts))
	}
	if got := fmt.Sprint(members(w.f)); got != "[b]" {
		t.Errorf("members %s", got)
	}
	// Its place is free now.
	drafts, contests := decideHeartbeat("x", w.f, beat(box("b"), rep("m", "ps", 0, 1, "b", replica.State_AVAILABLE), rep("m", "ps", 0, 0, "b", replica.State_START)))
	if got := tell(drafts); got != "registered m/ps:0/0" || len(contests) != 0 {
		t.Errorf("taking over: %s, %v", got, contests)
	}
}

func TestCheck(t *testing.T) {
	many := beat(box("a"))
	for i := range maxReplicas + 1 {
		many.Replicas = append(many.Replicas, rep("m", "ps", int32(i), 0, "a", replica.State_START))
	}
	for _, tc := range []struct {
		name string
		hb   *replica.Heartbeat
		says string // "": accepted
	}{
		{"plain", beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_START)), ""},
		{"container filled in", beat(box("a"), rep("m", "ps", 0, 0, "", replica.State_START)), ""},
		{"training task", beat(&container.Container{Id: "j/ps:0", Kind: "training", Job: "j", ServerType: "ps"}), ""},
		{"nothing", &replica.Heartbeat{}, "container is missing"},
		{"no id", beat(&container.Container{Kind: "serving"}), "must be named"},
		{"no kind", beat(&container.Container{Id: "a"}), "neither serving nor training"},
		{"another's replica", beat(box("a"), rep("m", "ps", 0, 0, "b", replica.State_START)), "the heartbeat of"},
		{"impossible type", beat(box("a"), rep("m", "ps:x", 0, 0, "a", replica.State_START)), "none of ps, entry and dense"},
		{"a task in the type", beat(box("a"), rep("m", "ps_3", 0, 0, "a", replica.State_START)), "none of ps, entry and dense"},
		{"a task of a sub-graph", beat(box("a"), rep("m", "user_tower", 1, 0, "a", replica.State_START)), "only ps and dense have several"},
		{"slash in the model", beat(box("a"), rep("m/n", "ps", 0, 0, "a", replica.State_START)), "slash"},
		{"negative replica", beat(box("a"), rep("m", "ps", 0, -1, "a", replica.State_START)), "negative"},
		{"twice", beat(box("a"), rep("m", "ps", 0, 0, "a", replica.State_START), rep("m", "ps", 0, 0, "a", replica.State_END)), "named twice"},
		{"a long name", beat(box("a"), rep(strings.Repeat("m", 250), "ps", 0, 0, "a", replica.State_START)), "at most 255"},
		{"too many", many, "at most 900"},
	} {
		refusal := check(tc.hb)
		switch {
		case tc.says == "" && refusal != nil:
			t.Errorf("%s: %v", tc.name, refusal)
		case tc.says != "" && (refusal == nil || refusal.Code != bus.CodeInvalid || !strings.Contains(refusal.Message, tc.says)):
			t.Errorf("%s: %v, want a sentence that says %q", tc.name, refusal, tc.says)
		}
	}
}

func TestMoved(t *testing.T) {
	base := &container.ResourceReported{Memory: 100, Cpu: 0.5, Network: 10, WorkLoad: -1}
	for _, tc := range []struct {
		name   string
		change func(*container.ResourceReported)
		want   bool
	}{
		{"same", func(*container.ResourceReported) {}, false},
		{"memory by less", func(r *container.ResourceReported) { r.Memory = 91 }, false},
		{"memory by a tenth", func(r *container.ResourceReported) { r.Memory = 90 }, true},
		{"memory to nothing", func(r *container.ResourceReported) { r.Memory = 0 }, true},
		{"cpu by less", func(r *container.ResourceReported) { r.Cpu = 0.54 }, false},
		{"cpu", func(r *container.ResourceReported) { r.Cpu = 0.6 }, true},
		{"network", func(r *container.ResourceReported) { r.Network = 20 }, true},
		{"work load becomes known", func(r *container.ResourceReported) { r.WorkLoad = 0 }, true},
	} {
		now := proto.CloneOf(base)
		tc.change(now)
		if got := moved(base, now); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	if moved(memory(0), memory(0)) {
		t.Error("nothing stayed nothing, and moved")
	}
}

package archive_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/registry"
	tree "github.com/monolith-go/monolith/projections/zookeeper/view"
)

// world makes random events about few things, so that they often meet: services come,
// move and go, and clients write beside them and into what is theirs.
type world struct{ rng *rand.Rand }

func (w world) n(n int) int { return w.rng.IntN(n) }

func (w world) draft() bus.Draft {
	const bzid = "w"
	host := fmt.Sprint("c", w.n(6))
	d := bus.Draft{Expect: bus.Any}
	switch w.n(12) {
	case 0:
		c := &container.Container{Id: host, Kind: "serving", Shard: int32(w.n(3)), Replica: int32(w.n(2)), Cluster: []string{"", "main", "a:b"}[w.n(3)], AgentAddress: fmt.Sprint("h:", w.n(2))}
		if w.n(4) == 0 {
			c.Kind, c.Job, c.ServerType, c.GrpcAddress = "training", []string{"j", "@j"}[w.n(2)], "ps", "h:1"
		}
		d.Subject = events.Join(bzid, "container", host)
		d.Event = &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}
	case 1, 2:
		d.Subject = events.Join(bzid, "container", host)
		d.Event = &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: int64(w.n(3)), Cpu: float64(w.n(3)) / 2}}}
	case 3:
		d.Subject = events.Join(bzid, "container", host)
		d.Event = &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{Reason: "gone"}}}
	case 4, 5:
		m, task := fmt.Sprint("m", w.n(3)), w.n(2)
		d.Subject = events.Join(bzid, "replica", fmt.Sprintf("%s/ps:%d/%d", m, task, w.n(2)))
		e := &replica.Event{}
		switch w.n(4) {
		case 0:
			e.Body = &replica.Event_Lost{Lost: &replica.Lost{Reason: "gone"}}
		case 1, 2:
			e.Body = &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: []replica.State{replica.State_LOADING, replica.State_AVAILABLE}[w.n(2)]}}
		default:
			p, _ := d.Subject.Parse()
			var number int32
			_, _ = fmt.Sscanf(p.Aggregate[len(p.Aggregate)-1:], "%d", &number)
			e.Body = &replica.Event_Registered{Registered: &replica.Registered{Replica: &replica.Replica{
				ModelName: m, ServerType: "ps", Task: int32(task), Replica: number, Container: host, GrpcAddress: "h:1", Stat: replica.State_AVAILABLE}}}
		}
		d.Event = e
	case 6:
		m := fmt.Sprint("m", w.n(3))
		d.Subject = events.Join(bzid, "model", m)
		d.Event = &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: m, ModelDir: fmt.Sprint("/d", w.n(3)), Version: 1, NumShard: 1, Replicas: 1}}}}
	default:
		d.Subject, d.Binary = events.Join(bzid, "znode", znode.Aggregate), true
		d.Event = w.write()
		if w.n(3) == 0 {
			p := &znode.Pack{}
			for range 1 + w.n(5) {
				p.Events = append(p.Events, w.write())
			}
			d.Event = &znode.Event{Body: &znode.Event_Pack{Pack: p}}
		}
	}
	return d
}

func (w world) write() *znode.Event {
	session := int64(w.n(3))
	switch w.n(20) {
	case 0:
		return &znode.Event{Body: &znode.Event_SessionOpened{SessionOpened: &znode.SessionOpened{Session: 1 + session, TimeoutMs: 1000, PasswordHash: make([]byte, 32)}}}
	case 1:
		return &znode.Event{Body: &znode.Event_SessionClosed{SessionClosed: &znode.SessionClosed{Session: 1 + session, Reason: znode.Closed}}}
	}
	p := &znode.Proposed{Session: session, Ops: []*znode.Op{w.op()}, Auth: []*znode.Identity{{Scheme: "ip", Id: "10.0.0.1"}}}
	for w.n(4) == 0 {
		p.Multi, p.Ops = true, append(p.Ops, w.op())
	}
	return &znode.Event{Body: &znode.Event_Proposed{Proposed: p}}
}

func (w world) op() *znode.Op {
	path := fmt.Sprint("/n", w.n(8))
	switch w.n(6) {
	case 0:
		path += fmt.Sprint("/k", w.n(3))
	case 1:
		path = fmt.Sprintf("/w/resource/%d:%d", w.n(3), w.n(2))
	case 2:
		path = fmt.Sprintf("/w/binding/m%d/ps_%d:unknown;None;main:c%d", w.n(3), w.n(2), w.n(6))
	case 3:
		path = fmt.Sprintf("/w/container_service/unknown;None;main:c%d", w.n(6))
	case 4:
		path = fmt.Sprintf("/w/service/m%d/ps:%d/%d", w.n(3), w.n(2), w.n(2))
	}
	data := bytes.Repeat([]byte{byte('a' + w.n(26))}, w.n(300))
	switch w.n(4) {
	case 0:
		return &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: -1}}}
	case 1:
		return &znode.Op{Op: &znode.Op_SetData{SetData: &znode.SetData{Path: path, Data: data, Version: int32(w.n(3)) - 1}}}
	}
	mode := []znode.Mode{znode.Mode_PERSISTENT, znode.Mode_PERSISTENT, znode.Mode_EPHEMERAL, znode.Mode_PERSISTENT_SEQUENTIAL, znode.Mode_CONTAINER}[w.n(5)]
	acl := []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}
	if w.n(5) == 0 {
		acl = append(acl, &znode.ACL{Perms: 1, Scheme: "ip", Id: "10.0.0.0/8"})
	}
	return &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Data: data, Acl: acl, Mode: mode}}}
}

// A tree that was rebuilt from an archive, where blocks are decoded beside one another
// into memory that is used again, is bit for bit the one that was folded event by event;
// and so is one that forgets, before every event, all that a snapshot does not hold.
func TestRebuiltTreeIsTheFoldedOne(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := world{rand.New(rand.NewPCG(seed, 1))}
	const n, forgetful = 12_000, 1000
	b := mem.New()
	defer b.Close()
	for range n / 100 {
		drafts := make([]bus.Draft, 100)
		for i := range drafts {
			drafts[i] = w.draft()
		}
		if _, err := b.Log().Append(soon(t), drafts...); err != nil {
			t.Fatal(err)
		}
	}
	folded, plain := tree.New(), tree.New()
	changed := 0
	err := b.Log().Follow(soon(t), 1, n, func(r events.Recorded) error {
		if r.Seq <= forgetful {
			var file bytes.Buffer
			if err := tree.Encode(plain)(&file); err != nil {
				return err
			}
			var err error
			if plain, err = tree.Decode(&file); err != nil {
				return err
			}
		}
		for part := range tree.Parts(r) {
			folded = tree.Fold(folded, part)
			did := folded.Effects()
			changed += len(did.Changes)
			if r.Seq > forgetful {
				continue
			}
			told := fmt.Sprintf("%+v", did.Changes)
			plain = tree.Fold(plain, part)
			if did := plain.Effects(); fmt.Sprintf("%+v", did.Changes) != told {
				return fmt.Errorf("sequence %d: %+v with a memory, %+v without", r.Seq, told, did.Changes)
			}
		}
		if r.Seq == forgetful {
			sameTree(t, "folded without a memory", plain, folded)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if changed < n/4 || folded.Count() < 20 {
		t.Errorf("%d changes and %d nodes: the story says little", changed, folded.Count())
	}
	a := write(t, t.TempDir(), b.Log(), n, archive.WriterOptions{Events: n / 3})
	blocks := 0
	for _, s := range a.Segments() {
		blocks += len(s.Blocks)
	}
	if blocks < 4 {
		t.Errorf("%d blocks: nothing is decoded beside anything else", blocks)
	}
	for range 2 { // the second time into what the first one left
		rebuilt, err := follow.Replay(soon(t), a.Log(&gone{Log: b.Log(), first: n + 1}), registry.Znode, n)
		if err != nil {
			t.Fatal(err)
		}
		sameTree(t, "rebuilt", rebuilt, folded)
		var x, y bytes.Buffer
		if err := tree.Encode(rebuilt)(&x); err != nil {
			t.Fatal(err)
		}
		if err := tree.Encode(folded)(&y); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Bytes(), y.Bytes()) {
			t.Error("rebuilt and folded trees have different snapshots")
		}
	}
}

func sameTree(t *testing.T, how string, got, want tree.State) {
	t.Helper()
	g, err := follow.Canonical(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := follow.Canonical(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g, w) {
		t.Errorf("%s:\n%s", how, registry.Diff(w, g))
	}
}

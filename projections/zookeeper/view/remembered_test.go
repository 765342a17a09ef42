package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/znode"
)

// facts draws events of a few containers and replicas in two namespaces, whose ids are the
// same in both, and of clients that write where the services' nodes are.
type facts struct {
	*rand.Rand
	clients bool
}

func (f facts) of(names ...string) string { return names[f.IntN(len(names))] }

func (f facts) next() (events.Subject, proto.Message) {
	bzid, id := f.of("a", "b"), f.of("x", "y", "z")
	r := &replica.Replica{
		ModelName: f.of("m", "n"), ServerType: f.of("ps", "ps", "entry"), Task: int32(f.IntN(2)), Container: f.of("x", "y", "z", ""),
		Stat: replica.State_AVAILABLE, GrpcAddress: f.of("h:1", "h:2"),
	}
	if f.IntN(3) == 0 {
		r.Stat = replica.State_LOADING
	}
	// The path need not be the one that the body would have.
	at := f.of("m/ps:0/0", "m/ps:0/1", "m/ps:1/0", "n/entry:0/0")
	switch kind := f.IntN(11); {
	case kind < 3:
		c := &container.Container{Id: id, Kind: f.of("serving", "serving", "serving", "training"), Idc: f.of("", "", "lf"), Shard: int32(f.IntN(2)), AgentAddress: f.of("h:1", "h:2")}
		if c.Kind == "training" {
			c.Job, c.ServerType = "j", "ps"
		}
		return events.Join(bzid, "container", id), &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{Container: c}}}
	case kind < 5:
		return events.Join(bzid, "container", id), &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{Memory: f.Int64N(3)}}}
	case kind < 6:
		return events.Join(bzid, "container", id), &container.Event{Body: &container.Event_Lost{Lost: &container.Lost{}}}
	case kind < 8:
		return events.Join(bzid, "replica", at), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}
	case kind < 9:
		return events.Join(bzid, "replica", at), &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: r.Stat}}}
	case kind < 10 || !f.clients:
		return events.Join(bzid, "replica", at), &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{}}}
	}
	path := "/" + bzid + f.of("", "/binding", "/binding/m", "/binding/m/ps_0:unknown;None;None:x", "/binding/m/ps_0:unknown;None;None:x/y", "/binding/m/entry:unknown;lf;None:y",
		"/container_service", "/container_service/unknown;None;None:x", "/resource/0:0", "/service/m/ps:0/0", "/service/m/ps:0/0/y")
	op := &znode.Op{Op: &znode.Op_Create{Create: &znode.Create{Path: path, Acl: []*znode.ACL{{Perms: 31, Scheme: "world", Id: "anyone"}}}}}
	if f.IntN(2) == 0 {
		op = &znode.Op{Op: &znode.Op_Delete{Delete: &znode.Delete{Path: path, Version: -1}}}
	}
	return events.Join(bzid, "znode", "tree"), &znode.Event{Body: &znode.Event_Proposed{Proposed: &znode.Proposed{Ops: []*znode.Op{op}}}}
}

// What the fold remembers of what it worked out changes nothing: a state that forgets it
// before each event, or comes from a snapshot, is the same one.
func TestWhatIsRememberedChangesNothing(t *testing.T) {
	for seed := range uint64(12) {
		f := facts{rand.New(rand.NewPCG(seed, 1)), seed%2 == 1}
		kept, forgetful := New(), New()
		for i := range 100 {
			subject, e := f.next()
			r := events.Recorded{Seq: uint64(i + 1), Subject: subject, Time: time.UnixMilli(int64(i)), Event: e}
			kept = Fold(kept, r)
			forgetful.cache = newCache()
			forgetful = Fold(forgetful, r)
			if i%10 == 9 {
				if forgetful = Fold(restored(t, forgetful), r); forgetful.Seq != r.Seq {
					t.Fatalf("seed %d: at %d behind event %d", seed, forgetful.Seq, r.Seq)
				}
			}
			a, b := text(t, kept), text(t, forgetful)
			if !bytes.Equal(a, b) {
				t.Fatalf("seed %d, event %d, %s %v:\n%s\nwithout what is remembered:\n%s", seed, i+1, subject, e, a, b)
			}
			if !f.clients {
				shown(t, fmt.Sprintf("seed %d, event %d, %s %v", seed, i+1, subject, e), kept)
			}
		}
	}
}

func text(t *testing.T, s State) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func restored(t *testing.T, s State) State {
	t.Helper()
	var file bytes.Buffer
	if err := Encode(s)(&file); err != nil {
		t.Fatal(err)
	}
	back, err := Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// shown says that the bindings and services in a tree that no client wrote to are those of
// the containers and replicas that live, and have their owners.
func shown(t *testing.T, when string, s State) {
	t.Helper()
	want, got := map[string]int64{}, map[string]int64{}
	for key, m := range s.Containers {
		bzid, _, _ := strings.Cut(key, "/")
		c := m.Container.V
		owner := Owner(bzid, c.GetId())
		if c.GetKind() == "serving" {
			want["/"+bzid+"/container_service/"+ContainerNode(c)] = owner
		}
		for path, r := range s.Replicas {
			if r.Container == c.GetId() && strings.HasPrefix(path, "/"+bzid+"/service/") && r.Stat == int32(replica.State_AVAILABLE) {
				want["/"+bzid+"/binding/"+r.ModelName+"/"+replica.SubModel(r.ServerType, r.Task)+":"+ContainerNode(c)] = owner
			}
		}
	}
	for _, bzid := range []string{"a", "b"} {
		tops := []string{"/" + bzid + "/container_service"}
		for _, model := range s.Children("/" + bzid + "/binding") {
			tops = append(tops, "/"+bzid+"/binding/"+model)
		}
		for _, top := range tops {
			for _, name := range s.Children(top) {
				st, _ := s.Stat(top + "/" + name)
				got[top+"/"+name] = st.EphemeralOwner
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: the tree shows\n%v, want\n%v", when, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

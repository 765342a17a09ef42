package replicaregistry

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/wire/znodedata"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/portal"
)

func zkClient(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	c, states, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for e := range states {
		if e.State == zk.StateHasSession {
			return c
		}
	}
	t.Fatal("no session")
	return nil
}

// oneOf has n clients do the same at once: one succeeds, and the others are told why not.
func oneOf(t *testing.T, n int, what string, others error, do func(i int) error) (winner int) {
	t.Helper()
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			winner = i
			won++
		case !errors.Is(err, others):
			t.Errorf("%s: client %d is told %v, want %v", what, i, err, others)
		}
	}
	if won != 1 {
		t.Errorf("%s: %d of %d succeeded, want 1", what, won, n)
	}
	return winner
}

// Of clients that create, set at a version, or delete the same node of a service at the
// same time, one succeeds, and the others hear what ZooKeeper would tell them.
func TestRoutedWritesAreConditional(t *testing.T) {
	h := openHarness(t, Config{})
	p, err := portal.New(portal.Config{}, controltest.Env(h.bus))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, p)
	const clients = 8
	open := zk.WorldACL(zk.PermAll)
	conns, exports := make([]*zk.Conn, clients), make([]string, clients)
	for i := range clients {
		conns[i] = zkClient(t, h.ZKAddr())
		exports[i] = controltest.Export(t, filepath.Join(t.TempDir(), fmt.Sprint("e", i)), controltest.Spec("m"), 1, 1)
	}
	for _, path := range []string{"/" + controltest.BZID, "/" + controltest.BZID + "/portal"} {
		if _, err := conns[0].Create(path, nil, 0, open); err != nil {
			t.Fatal(err)
		}
	}
	path := "/" + controltest.BZID + "/portal/m"
	data := func(i int) []byte {
		return znodedata.ModelMeta{ModelName: "m", ModelDir: exports[i], NumShard: -1, Action: "NONE"}.Bytes()
	}
	holder := -1        // whose data the node holds
	of := func(i int) { // what stands there is what that client wrote
		t.Helper()
		raw, _, err := conns[0].Get(path)
		var m struct {
			ModelDir string `json:"model_dir"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil || m.ModelDir != exports[i] {
			t.Errorf("the node holds %s, want the folder %s, %v", raw, exports[i], err)
		}
		holder = i
	}
	of(oneOf(t, clients, "create", zk.ErrNodeExists, func(i int) error { _, err := conns[i].Create(path, data(i), 0, open); return err }))
	for range 3 {
		_, st, err := conns[0].Get(path)
		if err != nil {
			t.Fatal(err)
		}
		was := holder
		of(oneOf(t, clients, fmt.Sprintf("setData at version %d", st.Version), zk.ErrBadVersion, func(i int) error {
			if i == was {
				return zk.ErrBadVersion // the same again is no new fact, and no new version
			}
			_, err := conns[i].Set(path, data(i), st.Version)
			return err
		}))
		if _, after, err := conns[0].Get(path); err != nil || after.Version != st.Version+1 {
			t.Errorf("version %d after one of many set it at %d, %v", after.Version, st.Version, err)
		}
	}
	oneOf(t, clients, "delete", zk.ErrNoNode, func(i int) error { return conns[i].Delete(path, -1) })
}

// A command that says what its caller has seen is refused once there is more.
func TestCommandsExpectWhatTheirCallerHasSeen(t *testing.T) {
	h := openHarness(t, Config{})
	p, err := portal.New(portal.Config{}, controltest.Env(h.bus))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, p)
	dir := controltest.Export(t, t.TempDir(), controltest.Spec("m"), 1, 1)
	var at struct{ Seq uint64 }
	if err := json.Unmarshal([]byte(controltest.MustCall(t, h.bus, "portal.load", fmt.Sprintf(`{"modelName":"m","modelDir":%q,"expectSeq":0}`, dir))), &at); err != nil {
		t.Fatal(err)
	}
	refused := func(command, body, code string) {
		t.Helper()
		var said *bus.CommandError
		if _, err := controltest.Call(t, h.bus, command, body); !errors.As(err, &said) || said.Code != code {
			t.Errorf("%s %s: %v, want %s", command, body, err, code)
		}
	}
	refused("portal.unload", fmt.Sprintf(`{"modelName":"m","expectSeq":%d}`, at.Seq-1), "CONFLICT")
	refused("portal.load", fmt.Sprintf(`{"modelName":"m","modelDir":%q,"expectSeq":0}`, dir), "CONFLICT")
	refused("portal.unload", `{"modelName":"m","expectSeq":"soon"}`, "INVALID")
	controltest.MustCall(t, h.bus, "portal.unload", fmt.Sprintf(`{"modelName":"m","expectSeq":%d}`, at.Seq))
}

// A node that shows a live replica goes with the fact it shows: a client's delete would
// hide the replica from everybody who looks here, and change nothing.
func TestClientsDoNotRemoveWhatServicesShow(t *testing.T) {
	h := openHarness(t, Config{Lease: time.Minute})
	controltest.Beat(t, h.bus, &replica.Heartbeat{
		Container: &container.Container{Id: "c", Kind: "serving", GrpcAddress: "h:1"}, Resource: &container.ResourceReported{Memory: 1},
		Replicas: []*replica.Replica{{ModelName: "m", ServerType: "entry", Container: "c", GrpcAddress: "h:1", Stat: replica.State_AVAILABLE}},
	})
	last, err := h.bus.Log().Last(t.Context())
	if err == nil {
		err = h.znode.Wait(t.Context(), last)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := zkClient(t, h.ZKAddr())
	shown := 0
	for _, path := range []string{"/test/service/m/entry:0/0", "/test/resource/0:0", "/test/binding/m/entry:unknown;None;None:c", "/test/container_service/unknown;None;None:c"} {
		before, st, err := c.Get(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		shown++
		if err := c.Delete(path, -1); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("delete %s: %v, want %v", path, err, zk.ErrNoAuth)
		}
		if _, err := c.Set(path, []byte("x"), -1); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("set %s: %v, want %v", path, err, zk.ErrNoAuth)
		}
		if _, err := c.Multi(&zk.DeleteRequest{Path: path, Version: -1}); !errors.Is(err, zk.ErrNoAuth) {
			t.Errorf("delete %s in a multi: %v, want %v", path, err, zk.ErrNoAuth)
		}
		if after, now, err := c.Get(path); err != nil || string(after) != string(before) || now.Version != st.Version {
			t.Errorf("%s is now %s, %+v, %v", path, after, now, err)
		}
	}
	if shown != 4 {
		t.Errorf("%d nodes of the container were there, want 4", shown)
	}
}

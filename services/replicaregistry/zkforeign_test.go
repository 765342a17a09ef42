package replicaregistry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/replicaregistry"
)

// An agent that knows only ZooKeeper registers with a stock client: the fleet has it, sees
// its state change, and loses it with its session.
func TestForeignAgent(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s, err := replicaregistry.New(replicaregistry.Config{ZKListen: "127.0.0.1:0", Lease: 300 * time.Millisecond}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	c := oracle.ZKClient(t, s.ZKAddr(), nil)
	make := func(path, data string, flags int32) {
		t.Helper()
		if _, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/test", "/test/resource", "/test/service", "/test/service/m1", "/test/service/m1/ps:1", "/test/service/m1/lq:default", "/test/service/m1/lq:default/entry:0"} {
		make(path, "", 0)
	}
	make("/test/resource/0:1", `{"address": "10.0.0.1:4002", "shard_id": 0, "replica_id": 1, "memory": 1073741824, "cpu": -1.0, "network": -1.0, "work_load": -1.0}`, zk.FlagEphemeral)
	meta := `{"address": "10.0.0.1:4003", "address_ipv6": "[::]:4003", "stat": 0, "model_name": null, "server_type": null, "task": -1, "replica": -1, "archon_address": "10.0.0.1:4001", "archon_address_ipv6": "[::]:4001"}`
	make("/test/service/m1/ps:1/7", meta, zk.FlagEphemeral)
	make("/test/service/m1/lq:default/entry:0/00000000003", meta, zk.FlagEphemeral)
	make("/test/service/m1/ps:1/not-a-number", meta, zk.FlagEphemeral)

	await := func(what string, is func(list string) bool) {
		t.Helper()
		wait.Seen(t, what, func() (string, bool) {
			list := controltest.MustCall(t, b, "registry.replicas", "")
			return list, is(list)
		})
	}
	await("both are known", func(l string) bool {
		return strings.Contains(l, `"m1/ps:1/7"`) && strings.Contains(l, `"m1/lq:default/entry:0/3"`)
	})
	if _, err := c.Set("/test/service/m1/ps:1/7", []byte(strings.Replace(meta, `"stat": 0`, `"stat": 30`, 1)), -1); err != nil {
		t.Fatal(err)
	}
	await("it is available", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"AVAILABLE"`) })
	controltest.Next(t, b, 1, controltest.Of("resourceReported"))

	// An agent of ours beats beside it; the foreign one needs no heartbeat, and its node
	// stays as it wrote it.
	controltest.Beat(t, b, ps(replica.State_AVAILABLE))
	await("ours has expired, theirs has not", func(l string) bool { return !strings.Contains(l, `"m/ps:0/0"`) })
	await("it is still available", func(l string) bool { return strings.Contains(l, `"key":"m1/ps:1/7","state":"AVAILABLE"`) })
	if data, st, err := c.Get("/test/service/m1/ps:1/7"); err != nil || st.Version != 1 || st.EphemeralOwner != c.SessionID() || !strings.Contains(string(data), `"stat": 30`) {
		t.Errorf("its node is %s %+v %v", data, st, err)
	}
	if _, err := c.Create("/test/publish", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Error(err)
	}
	if _, err := c.Create("/test/publish/0:1:m1", nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("a publish node: %v", err)
	}

	c.Close()
	await("they are lost with the session", func(l string) bool { return !strings.Contains(l, "m1/") })
	if n := controltest.Count(t, b, controltest.Of("sessionClosed")); n != 1 {
		t.Errorf("%d sessions closed", n)
	}
}

// An agent of version 3 writes what it serves and where it is itself: the agent service answers
// with it, as long as its session lasts, and no plan takes it for a place to load models.
func TestForeignBindings(t *testing.T) {
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	s, err := replicaregistry.New(replicaregistry.Config{ZKListen: "127.0.0.1:0", Listen: "127.0.0.1:0", AgentVersion: 2, Lease: 300 * time.Millisecond}, controltest.Env(b))
	if err != nil {
		t.Fatal(err)
	}
	controltest.Start(t, s)
	c := oracle.ZKClient(t, s.ZKAddr(), nil)
	make := func(path, data string, flags int32) {
		t.Helper()
		if _, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/test", "/test/binding", "/test/binding/m1", "/test/container_service"} {
		make(path, "", 0)
	}
	const who = "data.uni;lq;default:pod-7"
	// Bindings may come first.
	make("/test/binding/m1/ps_1:"+who, "", zk.FlagEphemeral)
	make("/test/binding/m1/user_tower:"+who, "", zk.FlagEphemeral)
	make("/test/binding/m1/entry:nobody;None;None:pod-8", "", zk.FlagEphemeral)
	make("/test/binding/m1/no-colon", "", zk.FlagEphemeral)
	make("/test/container_service/"+who, `{"grpc": "10.0.0.1:4003", "http": "10.0.0.1:4004", "archon": "10.0.0.1:4001", "agent": "10.0.0.1:4002", "idc": "lq", `+
		`"debug_info": "{\"layout_path\": \"/test/layouts/l1\", \"layout_filters\": [\"entry; True\"]}"}`, zk.FlagEphemeral)
	make("/test/container_service/no;lay;out:pod-9", `{"grpc": "10.0.0.9:4003", "debug_info": null}`, zk.FlagEphemeral)

	agent := agentClient(t, s)
	replicas := func() string {
		res, err := agent.GetReplicas(t.Context(), &agentpb.GetReplicasRequest{ServerType: agentpb.ServerType_PS, Task: 1, ModelName: "m1"})
		return strings.Join(res.GetAddressList().GetAddress(), " ") + fmt.Sprint(err)
	}
	wait.Seen(t, "it answers", func() (string, bool) { got := replicas(); return got, got == "10.0.0.1:4003<nil>" })
	list := controltest.MustCall(t, b, "registry.replicas", "")
	if !strings.Contains(list, `m1/user_tower:0/`) || strings.Contains(list, "m1/entry") || strings.Contains(list, "10.0.0.9") {
		t.Errorf("replicas: %s", list)
	}
	if err := c.Delete("/test/binding/m1/ps_1:"+who, -1); err != nil {
		t.Fatal(err)
	}
	wait.Seen(t, "it serves the shard no more", func() (string, bool) { got := replicas(); return got, got == "<nil>" })
	c.Close()
	wait.Seen(t, "it is lost with its session", func() (string, bool) {
		list := controltest.MustCall(t, b, "registry.replicas", "")
		return list, !strings.Contains(list, "m1/")
	})
}

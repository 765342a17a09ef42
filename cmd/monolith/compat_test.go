package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
)

// fakeAgent answers with what a test gives it.
type fakeAgent struct {
	beat     *agentpb.HeartBeatResponse
	replicas []string
	asked    *agentpb.GetReplicasRequest
}

func (f *fakeAgent) HeartBeat(context.Context, *agentpb.HeartBeatRequest) (*agentpb.HeartBeatResponse, error) {
	if f.beat == nil {
		return nil, status.Error(codes.Unavailable, "no")
	}
	return f.beat, nil
}

func (f *fakeAgent) GetReplicas(_ context.Context, in *agentpb.GetReplicasRequest) (*agentpb.GetReplicasResponse, error) {
	f.asked = in
	return &agentpb.GetReplicasResponse{AddressList: &agentpb.AddressList{Address: f.replicas}}, nil
}

func (f *fakeAgent) GetResource(context.Context, *agentpb.GetResourceRequest) (*agentpb.GetResourceResponse, error) {
	return &agentpb.GetResourceResponse{}, nil
}

func (f *fakeAgent) serve(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	agentpb.RegisterAgentServiceServer(s, f)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// wants runs one command and compares all of what it prints.
func wants(t *testing.T, want string, args ...string) {
	t.Helper()
	code, out, errs := opsTool(args...)
	if code != exitOK || out != want {
		t.Errorf("monolith %s: exit %d %s\ngot  %q\nwant %q", strings.Join(args, " "), code, errs, out, want)
	}
}

// refuses runs one command that must fail with code and say so.
func refuses(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	got, out, errs := opsTool(args...)
	if got != code || !strings.Contains(errs, says) {
		t.Errorf("monolith %s: exit %d, want %d, with %q\n%s%s", strings.Join(args, " "), got, code, says, out, errs)
	}
}

func TestCompatAgentService(t *testing.T) {
	f := &fakeAgent{beat: &agentpb.HeartBeatResponse{Addresses: map[string]*agentpb.AddressList{
		"ps:1": {Address: []string{"10.0.0.2:4003"}},
		"ps:0": {Address: []string{"10.0.0.1:4003", "[fd00::1]:4003"}},
		"ps:2": {},
	}}, replicas: []string{"10.0.0.1:4003", "10.0.0.2:4003"}}
	port := f.serve(t)
	t.Setenv("MY_HOST_IP", "127.0.0.1")
	hb := "ps:0  -> (2) \n\taddress: \"10.0.0.1:4003\"\n\taddress: \"[fd00::1]:4003\"\n" +
		"ps:1  -> (1) \n\taddress: \"10.0.0.2:4003\"\nps:2  -> (1) \n\t\n"
	wants(t, hb, "agent-client", "--cmd_type=hb", "--server_type=ps", "--port="+port, "--compat")
	wants(t, hb, "agent-client", "--cmd-type", "hb", "--target", "127.0.0.1:"+port, "--compat") // hb and ps are the defaults as well
	wants(t, `{"ps:0":["10.0.0.1:4003","[fd00::1]:4003"],"ps:1":["10.0.0.2:4003"],"ps:2":[]}`+"\n", "agent-client", "--port="+port, "--json")
	wants(t, "ps:0  10.0.0.1:4003  [fd00::1]:4003\nps:1  10.0.0.2:4003\nps:2  \n", "svr-client", "--port="+port)

	wants(t, "PS 0  =>  ['10.0.0.1:4003', '10.0.0.2:4003']\n", "agent-client", "--cmd_type=gr", "--server_type=ps", "--model_name=m1", "--port="+port, "--compat")
	wants(t, "10.0.0.1:4003\n10.0.0.2:4003\n", "agent-client", "--cmd_type=gr", "--model_name=m1", "--task=3", "--server_type=entry", "--port="+port)
	if f.asked.GetServerType() != agentpb.ServerType_ENTRY || f.asked.GetTask() != 3 || f.asked.GetModelName() != "m1" {
		t.Errorf("asked %v", f.asked)
	}
	wants(t, "['10.0.0.1:4003', '10.0.0.2:4003']\n", "svr-client", "--cmd_type=gr", "--server_type=dense", "--port="+port, "--compat")
	if f.asked.GetServerType() != agentpb.ServerType_DENSE { // its argument, where the original took another's
		t.Errorf("asked %v", f.asked)
	}
	wants(t, "{'ps:0': address: \"10.0.0.1:4003\"\naddress: \"[fd00::1]:4003\"\n, 'ps:1': address: \"10.0.0.2:4003\"\n, 'ps:2': }\n", "svr-client", "--port="+port, "--compat")
	f.replicas = nil
	wants(t, "DENSE 0  =>  []\n", "agent-client", "--cmd_type=gr", "--server_type=dense", "--model_name=m1", "--port="+port, "--compat")
	wants(t, "[]\n", "agent-client", "--cmd_type=gr", "--model_name=m1", "--port="+port, "--json")

	dir := t.TempDir()
	conf := filepath.Join(dir, "agent.conf")
	for name, text := range map[string]string{
		"agent.conf": "# the agent\nbzid = b1\nbase_name  movies # inline\ninclude " + filepath.Join(dir, "more.conf") + "\n",
		"more.conf":  "agent_port\t" + port + "\nbase_name other\nzk_servers none\n\nbare\n",
		"loop.conf":  "include " + filepath.Join(dir, "loop.conf") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, "PS 0  =>  []\n", "agent-client", "--cmd_type=gr", "--model_name=m1", "--conf="+conf, "--compat")
	if f.asked.GetModelName() != "movies" { // base_name counts before --model_name
		t.Errorf("asked %v", f.asked)
	}
	refuses(t, exitFailure, "include each other", "svr-client", "--conf="+filepath.Join(dir, "loop.conf"))
	f.beat = nil
	refuses(t, exitFailure, "agent service at 127.0.0.1:"+port, "agent-client", "--port="+port)
}

func TestCompatUsage(t *testing.T) {
	t.Setenv("PORT2", "")
	for says, args := range map[string]string{
		"none of hb, gr":                   "agent-client --cmd_type=profile",
		`--args "x" is none of addr`:       "agent-client --cmd_type=get --args=x",
		`--server_type "x" is none of`:     "agent-client --server_type=x",
		"with --port or --target":          "agent-client --cmd_type=hb",
		"--model_name":                     "agent-client --cmd_type=addr",
		"--model_dir":                      "agent-client --cmd_type=get --args=info",
		"exclude each other":               "client --cmd_type=status --json --compat",
		"none of decl, pub":                "agent-controller --cmd=x",
		"--export_base":                    "agent-controller --cmd=decl",
		"--layout and --model_name":        "agent-controller --cmd=pub --model_name=m",
		`--arch "x" is none of entry_ps`:   "agent-controller --cmd=decl --export_base=/d --arch=x",
		"name the model":                   "client --cmd_type=load",
		"names no server":                  "client --cmd_type=status --model_name=m --zk_servers=,",
		`--cmd_type "x" is none of hb, gr`: "svr-client --cmd_type=x",
		"unknown flag":                     "svr-client --nonsense",
	} {
		refuses(t, exitUsage, says, strings.Fields(args)...)
	}
	refuses(t, exitFailure, "lock is not support!", "agent-client", "--cmd_type=clean", "--args=lock")
}

// compatLog is a NATS that holds a few facts: m1 loaded, planned and served, m2 asked for.
func compatLog(t *testing.T) (flags []string) {
	t.Helper()
	s, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b, err := jetstream.Connect(t.Context(), jetstream.Config{URL: s.URL(), BZID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	loaded := func(name string) *model.Event {
		return &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{Load: &model.Load{ModelName: name, ModelDir: "/d/" + name, Version: 7, NumShard: 1}}}}
	}
	serves := func(kind string, stat replica.State, addr string) bus.Draft {
		r := &replica.Replica{ModelName: "m1", ServerType: kind, Container: "c", GrpcAddress: addr, Stat: stat, Version: 7}
		return bus.Draft{Subject: events.Join("b", "replica", "m1/"+kind+":0/0"), Event: &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: r}}}}
	}
	drafts := []bus.Draft{
		{Subject: events.Join("b", "model", "m1"), Event: loaded("m1")},
		{Subject: events.Join("b", "model", "m2"), Event: loaded("m2")},
		{Subject: events.Join("b", "publish", "m1"), Event: &publish.Event{Body: &publish.Event_Planned{Planned: &publish.Planned{
			ModelName: "m1", ModelDir: "/d/m1", Version: 7, NumPs: 1, Cause: 1, Assignments: []*publish.Assignment{
				{Container: "c", SubModels: map[string]string{"entry": "/d/m1/entry/7"}}, {Container: "c", SubModels: map[string]string{"ps_0": "/d/m1/ps_0/7"}}}}}}},
		{Subject: events.Join("b", "container", "c"), Event: &container.Event{Body: &container.Event_Reported{Reported: &container.Reported{
			Container: &container.Container{Id: "c", Kind: "serving", AgentAddress: "10.0.0.1:4002"}}}}},
		{Subject: events.Join("b", "container", "c"), Event: &container.Event{Body: &container.Event_ResourceReported{ResourceReported: &container.ResourceReported{
			Memory: 1073741824, Cpu: -1, Network: -1, WorkLoad: -1}}}},
		serves("ps", replica.State_AVAILABLE, "10.0.0.1:4003"),
		serves("entry", replica.State_LOADING, ""),
	}
	for _, d := range drafts {
		d.Expect = bus.Any
		if _, err := b.Log().Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--nats", s.URL(), "--bzid", "b"}
}

func TestCompatText(t *testing.T) {
	flags := compatLog(t)
	with := func(args string) []string {
		words := strings.Fields(args) // flags of the line count last
		return slices.Concat(words[:1], flags, words[1:])
	}
	wants(t, "/b/service/m1/entry:0/0\tarchon_address: None\taddress: None\tstate: LOADING\n/b/service/m1/ps:0/0\tarchon_address: None\taddress: 10.0.0.1:4003\tstate: AVAILABLE\n",
		with("agent-client --cmd_type=addr --model_name=m1 --compat")...)
	wants(t, "REPLICA       STATE      ADDRESS        ARCHON\nm1/entry:0/0  LOADING    -              -\nm1/ps:0/0     AVAILABLE  10.0.0.1:4003  -\n",
		with("agent-client --cmd_type=get --args=addr --model_name=m1")...)
	wants(t, "m2 has not load !\n", with("agent-client --cmd_type=get --args=addr --model_name=m2 --compat")...)
	refuses(t, exitFailure, "m2 has no replica in b", with("agent-client --cmd_type=addr --model_name=m2")...)

	wants(t, `0:0:m1 b'{"shard_id": 0, "replica_id": 0, "model_name": "m1", "num_ps": 1, "total_publish_num": 1, "sub_models": {"entry": "/d/m1/entry/7", "ps_0": "/d/m1/ps_0/7"}, "ptype": 1, "is_spec": false}'`+"\n",
		with("agent-client --cmd_type=get --args=pub --compat")...)
	meta := func(name string) string {
		return fmt.Sprintf(`{"model_name": %q, "model_dir": "/d/%s", "ckpt": null, "num_shard": 1, "action": "NONE", "spec_replicas": []}`, name, name)
	}
	wants(t, "m1 b'"+meta("m1")+"'\nm2 b'"+meta("m2")+"'\n", with("agent-client --cmd_type=get --args=portal --compat")...)
	wants(t, "m1  "+meta("m1")+"\nm2  "+meta("m2")+"\n", with("agent-client --cmd_type=get --args=portal")...)
	wants(t, `0:0 b'{"address": "10.0.0.1:4002", "shard_id": 0, "replica_id": 0, "memory": 1073741824, "cpu": -1.0, "network": -1.0, "work_load": -1.0}'`+"\n",
		with("agent-client --cmd_type=get --args=res --compat")...)
	wants(t, "no lock found !\n", with("agent-client --cmd_type=get --args=lock --compat")...)
	wants(t, "no elect found !\n", with("agent-client --cmd_type=get --args=elect --compat")...)
	wants(t, "nothing stands in /b/election\n", with("agent-client --cmd_type=get --args=elect")...)
	wants(t, "{}\n", with("agent-client --cmd_type=get --args=elect --json")...)

	wants(t, "LoadSate(portal=True, publish=True, service={'entry:0:0': 20, 'ps:0:0': 30})\n", with("client --cmd_type=status --model_name=m1 --compat")...)
	wants(t, "LoadSate(portal=True, publish=False, service={})\n", with("client --cmd_type=hb --model_name=m2 --compat")...)
	wants(t, "LoadSate(portal=False, publish=False, service={})\n", with("client --cmd_type=status --model_name=1 --compat")...) // no suffix counts
	wants(t, `{"portal":true,"publish":true,"service":{"entry:0:0":20,"ps:0:0":30}}`+"\n", with("client --cmd_type=status --model_name=m1 --json")...)
	wants(t, "asked for   yes\nplanned     yes\nentry:0:0   LOADING\nps:0:0      AVAILABLE\n", with("client --cmd_type=status --model_name=m1")...)
	refuses(t, exitFailure, "m1 has exists", with("client --cmd_type=load --model_name=m1 --model_dir=/d")...)
	refuses(t, exitFailure, "not the user's to delete", with("agent-client --cmd_type=clean --args=pub")...)

	wants(t, "\n{\n  \"model_info\": {},\n  \"container_info\": {},\n  \"layout_info\": {}\n}\n", with("agent-controller --cmd=bzid_info --compat --bzid=other")...)
	wants(t, "nothing is declared in other\n", with("agent-controller --bzid=other")...)
}

func TestCompatInfo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "exported_models")
	for sub, n := range map[string]int{"entry": 3, "ps_0": 5} {
		at := filepath.Join(dir, sub, "7")
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "saved_model.pb"), make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants(t, fmt.Sprintf("{'entry': (3, '%s/entry/7'), 'ps_0': (5, '%s/ps_0/7')}\n", dir, dir), "agent-client", "--cmd_type=get", "--args=info", "--model_dir="+dir, "--compat")
	wants(t, fmt.Sprintf(`{"entry":{"size":3,"path":"%s/entry/7"},"ps_0":{"size":5,"path":"%s/ps_0/7"}}`+"\n", dir, dir), "agent-client", "--cmd_type=get", "--args=info", "--model_dir="+dir, "--json")
	refuses(t, exitFailure, "exported models", "agent-client", "--cmd_type=get", "--args=info", "--model_dir="+filepath.Join(dir, "no"))
}

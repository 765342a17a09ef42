package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

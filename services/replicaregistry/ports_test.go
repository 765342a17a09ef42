package replicaregistry

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services/internal/controltest"
)

func TestTheAgentServiceBeyondThisMachineIsAskedForByName(t *testing.T) {
	for addr, want := range map[string]bool{"": true, "127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false, ":0": false, "[::]:0": false} {
		c := Config{Listen: addr}
		env := controltest.Env(mem.New())
		if _, err := New(c, env); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--insecure-agent") {
			t.Errorf("%q: %v", addr, err)
		}
		c.InsecureAgent = true
		if _, err := New(c, controltest.Env(mem.New())); err != nil {
			t.Errorf("%q, allowed: %v", addr, err)
		}
	}
}

// The agent service and the ZooKeeper port are under the certificates of all ports.
func TestTheAgentServiceOverTLS(t *testing.T) {
	authority := certs.NewAuthority(t)
	b := mem.New()
	t.Cleanup(func() { _ = b.Close() })
	env := controltest.Env(b)
	env.TLS = authority.Issue("registry")
	s, err := New(Config{Listen: "127.0.0.1:0", ZKListen: "127.0.0.1:0"}, env)
	if err != nil {
		t.Fatal(err)
	}
	if conf, err := (ZKPort{}).keys(env.TLS); err != nil || conf == nil {
		t.Errorf("the ZooKeeper port: %v, %v", conf, err)
	}
	if conf, err := (ZKPort{Insecure: true}).keys(env.TLS); err != nil || conf != nil {
		t.Errorf("the ZooKeeper port in plain text: %v, %v", conf, err)
	}
	if _, err := (ZKPort{}).keys(mtls.Files{Cert: env.TLS.Cert, Key: env.TLS.Key}); err == nil || !strings.Contains(err.Error(), "--zk-client-auth none") {
		t.Errorf("the ZooKeeper port without authorities: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatalf("Run = %v before it was ready", err)
	}
	ask := func(creds credentials.TransportCredentials) error {
		c, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = agentpb.NewAgentServiceClient(c).GetResource(ctx, &agentpb.GetResourceRequest{})
		return err
	}
	client, err := authority.Issue("client").Client()
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(credentials.NewTLS(client)); status.Code(err) == codes.Unavailable {
		t.Errorf("a client of the authority: %v", err)
	}
	if err := ask(insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Errorf("a client in plain text: %v", err)
	}
}

package tfssupervisor

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/services/internal/agentservice"
)

// The agent's own port tells nobody that there are no shards before the agent knows the fleet.
func TestAgentAnswersOnceItKnowsTheFleet(t *testing.T) {
	b := mem.New()
	defer b.Close()
	a := &Agent{fleet: follow.New(b.Log(), registry.Fleet.Only("test"), follow.Options{})}
	a.answers = &agentservice.Service{Fleet: a.fleet, Addr: func() string { return "" }, Answers: agentservice.Answers{Version: 3}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.answer(ctx, ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := agentpb.NewAgentServiceClient(conn).HeartBeat(ctx, &agentpb.HeartBeatRequest{}, grpc.WaitForReady(true))
		return err
	}
	if err := ask(200 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("before it knows the fleet: %v", err)
	}
	go func() { ended <- a.fleet.Run(ctx) }()
	if err := ask(wait.Patience); err != nil {
		t.Errorf("after that: %v", err)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}

func TestWhereAnAgentListens(t *testing.T) {
	for open, want := range map[bool]string{false: "127.0.0.1:9", true: ":9"} {
		a := &Agent{cfg: AgentConfig{InsecureAgent: open}}
		var d agentconf.Deployment
		d.AgentPort = 9
		if at := a.listenAddress(&d); at != want {
			t.Errorf("open to others %v: %s, want %s", open, at, want)
		}
	}
}

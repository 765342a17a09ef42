package modelserver_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/internal/process/health"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// A unix socket has what the gRPC port has, in plain text, and is gone with the server.
func TestGRPCSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "grpc.sock")
	w := newWorld(t)
	w.export(1, 1, 0)
	s, subs := w.one(1, func(c *modelserver.Config) { c.GRPCSocket = path })
	s.mustLoad(1, subs...)
	cc, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	res, err := tfserving.NewModelClient(cc).GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker, 0)})
	if err != nil || len(res.GetModelVersionStatus()) != 1 {
		t.Errorf("%v, %v", res, err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := modelserver.New(modelserver.Config{Container: "other", GRPCSocket: path}, services.Env{BZID: bzid, Bus: w.bus, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Tracer: w.tracer, Health: health.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Run(testContext(t)); err == nil || !strings.Contains(err.Error(), "--grpc-socket-path") {
		t.Errorf("where a file lies: %v", err)
	}
}

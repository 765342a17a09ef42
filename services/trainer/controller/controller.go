// Package controller is the original's control of a training job, by gRPC and by a file. It keeps
// nothing: what it is asked becomes the job's commands and requests.
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/compat/controllerpb"
	"github.com/monolith-go/monolith/internal/durable"
)

// AddressFile is what clients read the address of, in the job's folder.
const AddressFile = "controller_server_addr.txt"

const (
	grace      = 20 * time.Second // for calls under way at the end
	maxMessage = 4 << 10          // bytes: all requests are empty
	streams    = 16               // calls of one connection at once
)

// Job is the training job that is controlled. An error that is a [bus.CommandError] reaches the
// caller with its code.
type Job struct {
	Pause  func(context.Context) error // waits until trainers rest
	Resume func(context.Context) error
	Save   func(context.Context) error // waits for the checkpoint
	Blocks func() (blocked, unblocked []int)
	Step   func(context.Context) (uint64, error)
}

// Server answers the service Controller.
type Server struct {
	Job  Job
	Addr string      // host:port; port 0: any that is free
	TLS  *tls.Config // nil: plain text
	Dir  string      // where the address file is written
	Up   func()      // called once clients can find it
}

// Run listens, writes the address file and serves until ctx ends. The file stays, as the original's
// does; the job's next chief writes its own over it.
func (s *Server) Run(ctx context.Context) error {
	ln, err := net.Listen("tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("listen for the controller (--controller names another address): %w", err)
	}
	addr, err := reachable(ln.Addr())
	if err == nil {
		err = os.MkdirAll(s.Dir, 0o755)
	}
	if err == nil {
		err = durable.Swap(filepath.Join(s.Dir, AddressFile), 0o644, []byte(addr))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", AddressFile, err), ln.Close())
	}
	s.Up()
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(streams), grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 10 * time.Second}),
	}
	if s.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(s.TLS)))
	}
	srv := grpc.NewServer(opts...)
	controllerpb.RegisterControllerServer(srv, service{s.Job})
	inner, cancel := context.WithCancel(ctx)
	var end sync.WaitGroup
	end.Go(func() {
		<-inner.Done()
		hard := time.AfterFunc(grace, srv.Stop)
		defer hard.Stop()
		srv.GracefulStop()
	})
	err = srv.Serve(ln)
	cancel()
	end.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reachable is where others connect to: by this machine's name where all of its addresses are
// listened on.
func reachable(a net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return "", err
	}
	if net.ParseIP(host).IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

type service struct{ job Job }

// StopTraining pauses the job; one that is paused already is ALREADY_EXISTS.
func (s service) StopTraining(ctx context.Context, _ *controllerpb.StopTrainingRequest) (*controllerpb.StopTrainingResponse, error) {
	err := s.job.Pause(ctx)
	if blocked := new(bus.CommandError); errors.As(err, &blocked) && blocked.Code == bus.CodeConflict {
		return nil, status.Errorf(codes.AlreadyExists, "Barrier is placed already. %s", blocked.Message)
	}
	return &controllerpb.StopTrainingResponse{}, refusal(err)
}

// ResumeTraining ends a pause. Of a job that is not paused it changes nothing.
func (s service) ResumeTraining(ctx context.Context, _ *controllerpb.ResumeTrainingRequest) (*controllerpb.ResumeTrainingResponse, error) {
	return &controllerpb.ResumeTrainingResponse{}, refusal(s.job.Resume(ctx))
}

// GetBlockStatus tells which trainers rest in a pause, by their --index.
func (s service) GetBlockStatus(context.Context, *controllerpb.GetBlockStatusRequest) (*controllerpb.GetBlockStatusResponse, error) {
	blocked, unblocked := s.job.Blocks()
	return &controllerpb.GetBlockStatusResponse{BlockedIndices: indices(blocked), UnblockedIndices: indices(unblocked)}, nil
}

// SaveCheckpoint makes a checkpoint and waits for it.
func (s service) SaveCheckpoint(ctx context.Context, _ *controllerpb.SaveCheckpointRequest) (*controllerpb.SaveCheckpointResponse, error) {
	return &controllerpb.SaveCheckpointResponse{}, refusal(s.job.Save(ctx))
}

// GetTrainingStatus tells how many applies every shard has.
func (s service) GetTrainingStatus(ctx context.Context, _ *controllerpb.GetTrainingStatusRequest) (*controllerpb.GetTrainingStatusResponse, error) {
	step, err := s.job.Step(ctx)
	if err != nil {
		return nil, refusal(err)
	}
	return &controllerpb.GetTrainingStatusResponse{GlobalStep: int64(step)}, nil
}

func indices(in []int) (out []int32) {
	for _, i := range in {
		out = append(out, int32(i))
	}
	return out
}

// refusal is err with the code of gRPC that tells the caller what to do.
func refusal(err error) error {
	if err == nil {
		return nil
	}
	r := bus.Refusal(err)
	code := codes.Internal
	switch r.Code {
	case bus.CodeInvalid:
		code = codes.InvalidArgument
	case bus.CodeNotFound:
		code = codes.NotFound
	case bus.CodeConflict:
		code = codes.FailedPrecondition
	case bus.CodeUnavailable:
		code = codes.Unavailable
	}
	return status.Error(code, r.Message)
}

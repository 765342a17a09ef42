package natsserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	healEvery = time.Second
	healProbe = 4 << 20 // bytes that the disk must take before the streams are opened again
)

// heal keeps a disk that was full for a while from being the end of the server.
//
// A stream whose file could not be written answers nobody from then on, not even with
// an error, and stays so when there is space again: the server opens streams only when
// it starts. So it is started anew on the same port, once the disk takes bytes. Nothing
// acked is touched; clients reconnect, and whoever still waits sends again.
func (s *Server) heal(ctx context.Context) {
	tick := time.NewTicker(healEvery)
	defer tick.Stop()
	dir, log, told := s.cfg.Dir, s.cfg.tell, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		cause := s.broken()
		if cause == nil {
			continue
		}
		if !told {
			told = true
			log(cause, fmt.Sprintf("the streams cannot be written and nothing is acked: free space on the disk of %s; that is all, no restart is needed", dir))
		}
		if err := probe(dir); err != nil {
			continue
		}
		sick := s.ns.Load()
		sick.Shutdown()
		sick.WaitForShutdown()
		if err := s.open(); err != nil { // the sick one stays in place, and broken
			log(err, "the server did not start again; trying on")
			continue
		}
		told = false
		log(nil, "the disk takes bytes again and the streams are open")
	}
}

// broken says why the server can no longer write, nil if it can.
func (s *Server) broken() error {
	ns := s.ns.Load()
	if !ns.Running() {
		return errors.New("the server is down")
	}
	for _, e := range ns.Healthz(&server.HealthzOptions{Details: true}).Errors {
		// A stream that is being created is "not recovered" for a moment: that is no
		// reason. Nor is a cluster without a leader, or one that is ahead of this server.
		if e.Type == server.HealthzErrorJetStream && (s.cfg.Cluster.Name == "" || !ns.JetStreamEnabled()) || strings.Contains(e.Error, "write error") {
			return errors.New(e.Error)
		}
	}
	return nil
}

// probe writes as much as the streams will need to go on.
func probe(dir string) (err error) {
	f, err := os.CreateTemp(dir, "probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, healProbe)); err != nil {
		return err
	}
	return f.Sync()
}

// sweepProbes removes what a kill left of probes.
func sweepProbes(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "probe-*"))
	for _, path := range left {
		_ = os.Remove(path) // a leftover that stays costs its bytes, nothing else
	}
}

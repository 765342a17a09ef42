package replicaregistry

import (
	"context"
	"encoding/json"
	"net"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/zookeeper/ensemble"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/writer"
	"github.com/monolith-go/monolith/services"
)

// newMirror is the mirror into a real ensemble that the configuration asks for, nil for
// none. It must be made before the tree runs.
func newMirror(cfg ZKMirror, env services.Env, tree *follow.Follower[view.State], w *writer.Writer) (*ensemble.Mirror, error) {
	if len(cfg.Servers) == 0 {
		return nil, nil
	}
	auth, err := cfg.auth()
	if err != nil {
		return nil, err
	}
	secure, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	if len(auth) > 0 && secure == nil && !slices.ContainsFunc(cfg.Servers, isLoopback) {
		env.Log.Warn("the identity of --zk-auth-file goes to the ensemble in the clear: name its secure ports and give --zk-mirror-tls-cert, -key and -ca")
	}
	c := ensemble.Config{
		Servers: cfg.Servers, Chroot: cfg.Chroot, BZID: env.BZID, Roots: cfg.Roots, Auth: auth, TLS: secure,
		Session: cfg.Session, Resync: cfg.Resync, Log: env.Bus.Log(), Metrics: env.Metrics,
	}
	if cfg.Bridge {
		c.Importer = w.Importer()
	}
	return ensemble.New(c, tree, env.Log)
}

// isLoopback says whether a server is on this machine.
func isLoopback(server string) bool {
	host, _, err := net.SplitHostPort(server)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// handleMirror answers how the mirror stands. Whoever writes mirrors.
func (s *Server) handleMirror(context.Context, []byte) ([]byte, error) {
	switch {
	case s.mirror == nil:
		return nil, bus.Refuse(bus.CodeNotFound, "this registry mirrors into no ensemble: give it --zk-mirror")
	case !s.writes.Writable():
		return nil, bus.Refuse(bus.CodeUnavailable, "another registry of this namespace writes, and mirrors: ask again to reach that one")
	}
	return json.Marshal(s.mirror.Status())
}

package discovery

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// zooKeeper is an ensemble, or the ZooKeeper port of a replica-registry. A task is the ephemeral node
// /monolith/<deep_insight_name>/<role>.<index>, which holds its host:port.
type zooKeeper struct {
	conn  *zk.Conn
	dir   string
	calls sync.WaitGroup // that a deadline has left behind
}

const (
	zkSession = 10 * time.Second
	zkKeep    = 5 * time.Second // the original looks after 30 minutes, and when a session was lost
)

func newZooKeeper(servers, job string) (*zooKeeper, error) {
	list := flags.List(servers)
	if len(list) == 0 {
		return nil, errors.New("discovery_type zk needs the servers: give zk_server as host:port,host:port, or set zk_servers")
	}
	if job == "" || strings.Contains(job, "/") || job == "." || job == ".." {
		return nil, fmt.Errorf("discovery_type zk keeps tasks below the job's name, a part of a path: give deep_insight_name, not %q", job)
	}
	conn, _, err := zk.Connect(list, zkSession, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	return &zooKeeper{conn: conn, dir: Path(job)}, nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Path is the folder of a job's tasks, or with more names a node below it.
func Path(job string, more ...string) string {
	return path.Join(append([]string{"/monolith", job}, more...)...)
}

func (z *zooKeeper) Kind() string         { return "zk" }
func (z *zooKeeper) Every() time.Duration { return zkKeep }

// Close ends the session, and with it the nodes that are left.
func (z *zooKeeper) Close() error {
	z.conn.Close()
	z.calls.Wait()
	return nil
}

func (z *zooKeeper) node(role string, index int) string {
	return path.Join(z.dir, role+"."+strconv.Itoa(index))
}

// within runs do, which knows no deadline, until ctx ends. What is left of it ends with the connection.
func (z *zooKeeper) within(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	z.calls.Go(func() { done <- do() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ZooKeeper does not answer (zk_server): %w", ctx.Err())
	}
}

func (z *zooKeeper) Register(ctx context.Context, role string, index int, addr string) error {
	return z.within(ctx, func() error { return z.put(z.node(role, index), addr) })
}

// put creates the node, in place of one that holds another address. One that holds this address is left:
// a session before has made it, and Keep makes it anew once that session is gone.
func (z *zooKeeper) put(node, addr string) error {
	for at := "/"; at != z.dir; {
		at = path.Join(at, strings.SplitN(strings.TrimPrefix(strings.TrimPrefix(z.dir, at), "/"), "/", 2)[0])
		if _, err := z.conn.Create(at, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	for {
		_, err := z.conn.Create(node, []byte(addr), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		data, stat, err := z.conn.Get(node)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case err != nil:
			return err
		case string(data) == addr, len(data) == 0: // empty: a replica-registry's port shows who has no address of its own
			return nil
		}
		if err := z.conn.Delete(node, stat.Version); err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
	}
}

// Keep makes the node anew where it went with the session that made it.
func (z *zooKeeper) Keep(ctx context.Context, role string, index int, addr string) error {
	return z.within(ctx, func() error {
		found, _, err := z.conn.Exists(z.node(role, index))
		if err != nil || found {
			return err // ours, or another process has the task now
		}
		return z.put(z.node(role, index), addr)
	})
}

// Deregister removes the node while it is of this session.
func (z *zooKeeper) Deregister(ctx context.Context, role string, index int, _ string) error {
	return z.within(ctx, func() error {
		node := z.node(role, index)
		_, stat, err := z.conn.Get(node)
		if err == nil && stat.EphemeralOwner == z.conn.SessionID() {
			err = z.conn.Delete(node, stat.Version)
		}
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
}

func (z *zooKeeper) Query(ctx context.Context, role string) (map[int]string, error) {
	found := map[int]string{}
	var mine map[int]string
	err := z.within(ctx, func() error {
		names, _, err := z.conn.Children(z.dir)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		some := map[int]string{}
		for _, name := range names {
			kind, text, _ := strings.Cut(name, ".")
			index, bad := strconv.Atoi(text)
			if kind != role || bad != nil {
				continue
			}
			data, _, err := z.conn.Get(path.Join(z.dir, name))
			if errors.Is(err, zk.ErrNoNode) {
				continue
			} else if err != nil {
				return err
			}
			some[index] = string(data)
		}
		mine = some
		return err
	})
	if err == nil && mine != nil {
		found = mine
	}
	return found, err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/wire/znodedata"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/compat/agentdata"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/projections/registry"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// answerTimeout bounds each question of the compatible commands.
const answerTimeout = 10 * time.Second

// tree is the ZooKeeper tree as the compatible commands read it.
type tree interface {
	// get returns a node's data; ok is false where there is no node.
	get(path string) (data []byte, ok bool, err error)
	// children returns the names below a node, sorted.
	children(path string) (names []string, ok bool, err error)
	close()
}

// foldedTree is the znode view of one namespace, folded from the log up to now.
type foldedTree struct{ s view.State }

func foldTree(ctx context.Context, b bus.Bus, bzid string) (tree, error) {
	s, err := follow.Replay(ctx, b.Log(), registry.Znode.Only(bzid), follow.End)
	if err != nil {
		return nil, fmt.Errorf("fold the tree from the log: %w", err)
	}
	return foldedTree{s}, nil
}

func (t foldedTree) get(path string) ([]byte, bool, error) {
	data, _, ok := t.s.Get(path)
	return data, ok, nil
}

func (t foldedTree) children(path string) ([]string, bool, error) {
	if _, _, ok := t.s.Get(path); !ok {
		return nil, false, nil
	}
	return t.s.Children(path), true, nil
}

func (t foldedTree) close() {}

// zkTree is a ZooKeeper: our port or a real ensemble.
type zkTree struct{ c *zk.Conn }

// dialZK waits for a session. servers is host:port[,host:port...]; ZK_AUTH in the
// environment is the digest "user:password" to act under.
func dialZK(ctx context.Context, servers string) (*zkTree, error) {
	var list []string
	for _, s := range strings.Split(servers, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if !strings.Contains(s, ":") {
			s += ":2181"
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: --zk_servers %q names no server: give host:port[,host:port]", flags.ErrUsage, servers)
	}
	c, events, err := zk.Connect(list, answerTimeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper at %s: %w", servers, err)
	}
	late := time.NewTimer(answerTimeout)
	defer late.Stop()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok || e.State == zk.StateAuthFailed:
				c.Close()
				return nil, fmt.Errorf("connect to ZooKeeper at %s: the connection was refused", servers)
			case e.State == zk.StateHasSession:
				if auth := os.Getenv("ZK_AUTH"); auth != "" {
					if err := c.AddAuth("digest", []byte(auth)); err != nil {
						c.Close()
						return nil, fmt.Errorf("ZooKeeper at %s does not take ZK_AUTH: %w", servers, err)
					}
				}
				return &zkTree{c}, nil
			}
		case <-ctx.Done():
			c.Close()
			return nil, ctx.Err()
		case <-late.C:
			c.Close()
			return nil, fmt.Errorf("connect to ZooKeeper at %s: no session within %v: is it running?", servers, answerTimeout)
		}
	}
}

// silent keeps the client's own log off the terminal: what matters comes back as errors.
type silent struct{}

func (silent) Printf(string, ...any) {}

func (t *zkTree) close() { t.c.Close() }

func (t *zkTree) get(path string) ([]byte, bool, error) {
	data, _, err := t.c.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read %s: %w", path, err)
	}
	return data, true, nil
}

func (t *zkTree) children(path string) ([]string, bool, error) {
	names, _, err := t.c.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list %s: %w", path, err)
	}
	slices.Sort(names)
	return names, true, nil
}

// put creates the node and its parents, or sets its data.
func (t *zkTree) put(path string, data []byte) error {
	acl := zk.WorldACL(zk.PermAll)
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if _, err := t.c.Create(path[:i], nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	_, err := t.c.Create(path, data, 0, acl)
	if errors.Is(err, zk.ErrNodeExists) {
		_, err = t.c.Set(path, data, -1)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// remove deletes a node, and what is below it where recursive; found is false where
// there is none.
func (t *zkTree) remove(path string, recursive bool) (found bool, err error) {
	if recursive {
		names, ok, err := t.children(path)
		if err != nil || !ok {
			return false, err
		}
		for _, name := range names {
			if _, err := t.remove(path+"/"+name, true); err != nil {
				return true, err
			}
		}
	}
	err = t.c.Delete(path, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("delete %s: %w", path, err)
	}
	return true, nil
}

// replicaNode is one node below /{bzid}/service/{model}.
type replicaNode struct {
	path string
	meta znodedata.ReplicaMeta
}

// replicaNodes walks a model's service nodes, with and without idc:cluster between. ok
// is false where the model has none.
func replicaNodes(t tree, bzid, model string) (found []replicaNode, ok bool, err error) {
	var walk func(path string, depth int) error
	walk = func(path string, depth int) error {
		names, _, err := t.children(path)
		if err != nil {
			return err
		}
		for _, name := range names {
			if below := path + "/" + name; taskName.MatchString(name) || depth > 0 && isNumber(name) {
				numbers, _, err := t.children(below)
				if err != nil {
					return err
				}
				// A data centre's name may look like a task's, lq:1, but replicas have numbers.
				if depth == 0 && slices.ContainsFunc(numbers, taskName.MatchString) {
					if err := walk(below, depth+1); err != nil {
						return err
					}
					continue
				}
				for _, n := range numbers {
					data, there, err := t.get(below + "/" + n)
					if err != nil {
						return err
					}
					if !there {
						continue // gone in between
					}
					meta, err := agentdata.DecodeReplicaMeta(data)
					if err != nil {
						return fmt.Errorf("%s/%s: %w", below, n, err)
					}
					found = append(found, replicaNode{below + "/" + n, meta})
				}
			} else if depth == 0 {
				if err := walk(below, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	root := "/" + bzid + "/service/" + model
	if _, ok, err = t.children(root); err != nil || !ok {
		return nil, false, err
	}
	return found, true, walk(root, 0)
}

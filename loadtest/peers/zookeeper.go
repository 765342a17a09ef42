package peers

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/testenv/zookeeper"
)

// StartZooKeeper runs Apache's server as Debian packages it, alone, on a free port with
// its data below dir.
func StartZooKeeper(ctx context.Context, dir string) (*zookeeper.Server, error) {
	if !zookeeper.Installed() {
		return nil, fmt.Errorf("find Apache ZooKeeper (run make oracles): %w", ErrMissing)
	}
	return zookeeper.Start(ctx, zookeeper.Config{Dir: dir})
}

package rows

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/projections/fleet"
)

// MaxRetries bounds the retries of a Client.
const MaxRetries = 7

// Client asks serving shards for rows, wherever the fleet view says that they are.
type Client struct {
	pool    *rowwire.Pool
	routes  *routes
	metrics *Metrics
	timeout time.Duration
	retries int
}

// NewClient asks a replica for at most timeout, and after failures up to retries more of them.
// The pool is the caller's to close.
func NewClient(f *follow.Follower[fleet.State], pool *rowwire.Pool, m *Metrics, timeout time.Duration, retries int) *Client {
	return &Client{pool: pool, routes: newRoutes(f, pool.Drop), metrics: m, timeout: timeout, retries: retries}
}

// Run keeps the addresses of the replicas current until ctx ends.
func (s *Client) Run(ctx context.Context) { s.routes.run(ctx) }

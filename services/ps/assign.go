package ps

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/state"
)

// assign sets rows past the stream of training records, and answers once a delta with
// them is on disk:
//
//	set the rows, which lists them     | not acked; a crash may lose it
//	publish a delta that says so       | a restarted shard reads it and sets them again
//	answer
//
// The leading goroutine does both, so no other publication comes between, and both wait
// until no cut holds the shard.
// After a restore the assignment comes before the records that are learnt again, even
// those it once came behind.
func (s *Server) assign(ctx context.Context, r shardcmd.AssignRequest) (shardcmd.AssignResponse, error) {
	none := shardcmd.AssignResponse{}
	if err := s.st.CheckAssign(r); err != nil {
		return none, err
	}
	for {
		seq, err := s.assignNow(ctx, r)
		if !errors.Is(err, state.ErrHeld) {
			return shardcmd.AssignResponse{SyncSeq: seq}, err
		}
		if err := s.st.Unheld(ctx); err != nil {
			return none, err
		}
	}
}

func (s *Server) assignNow(ctx context.Context, r shardcmd.AssignRequest) (seq uint64, _ error) {
	err := s.do(ctx, func(ctx context.Context) error {
		at, err := s.pub.Alone(ctx, func() (*delta.Delta, error) { return s.st.Assign(r, time.Now()) })
		if err == nil {
			seq = at
		}
		return err
	})
	return seq, err
}

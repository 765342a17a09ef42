package zkserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/jute"
	"github.com/monolith-go/monolith/projections/follow"
	"github.com/monolith-go/monolith/projections/znode"
)

// historySize is how many past trees are kept.
const historySize = 4

// history holds past trees. One replay runs at a time: they cost as much as the log is
// long.
type history struct {
	log  bus.Log
	tree *follow.Follower[znode.State]

	turn  chan struct{} // holds one token
	trees []pastTree    // newest use last; owned by the holder of the token
}

type pastTree struct {
	seq   uint64
	state *znode.State // never changed again
}

func newHistory(log bus.Log, tree *follow.Follower[znode.State]) *history {
	h := &history{log: log, tree: tree, turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

// isPast says whether path lies below /@<when>.
func isPast(path string) bool { return strings.HasPrefix(path, "/@") }

// resolve finds the tree that path is to be read in: nil for the live one. Below
// /@<sequence> and /@<RFC3339 time> lies the tree as it was then.
func (s *Server) resolve(ctx context.Context, path string) (*znode.State, string, jute.Code) {
	if !isPast(path) {
		return nil, path, jute.OK
	}
	when, rest, _ := strings.Cut(path[2:], "/")
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SyncTimeout)
	defer cancel()
	state, err := s.history.at(ctx, when)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, "", jute.NoNode
	case errors.Is(err, context.DeadlineExceeded):
		s.logger.Warn("past tree not ready in time", "when", when, "err", err)
		return nil, "", jute.OperationTimeout
	case err != nil:
		s.logger.Warn("past tree not readable", "when", when, "err", err)
		return nil, "", jute.SystemError
	}
	return state, "/" + rest, jute.OK
}

// at is the tree after the event at a sequence, or after the last one stored by a time.
// What is neither, or has not come yet, is bus.ErrNotFound.
func (h *history) at(ctx context.Context, when string) (*znode.State, error) {
	seq, err := strconv.ParseUint(when, 10, 64)
	if err != nil || strconv.FormatUint(seq, 10) != when {
		t, err := time.Parse(time.RFC3339, when)
		if err != nil {
			return nil, fmt.Errorf("%w: %q is neither a sequence nor an RFC3339 time", bus.ErrNotFound, when)
		}
		if seq, err = h.log.SeqAt(ctx, t); err != nil {
			return nil, err
		}
		seq = min(seq, h.tree.Seq())
	}
	if seq > h.tree.Seq() {
		return nil, fmt.Errorf("%w: sequence %d has not come yet", bus.ErrNotFound, seq)
	}
	select {
	case <-h.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { h.turn <- struct{}{} }()
	for i, p := range h.trees {
		if p.seq == seq {
			h.trees = append(append(h.trees[:i:i], h.trees[i+1:]...), p)
			return p.state, nil
		}
	}
	v := h.tree.View()
	state := v.New()
	if seq > 0 {
		if state, err = follow.Replay(ctx, h.log, v, seq); err != nil {
			return nil, err
		}
	}
	if len(h.trees) == historySize {
		h.trees = h.trees[1:]
	}
	h.trees = append(h.trees, pastTree{seq, &state})
	return &state, nil
}

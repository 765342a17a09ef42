package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// historySize is how many past trees are kept.
const historySize = 4

// history holds past trees. One replay runs at a time: they cost as much as the log is
// long.
type history struct {
	log  bus.Log
	tree *follow.Follower[view.State]

	turn  chan struct{} // holds one token
	trees []pastTree    // newest use last; owned by the holder of the token
}

type pastTree struct {
	seq   uint64
	state *view.State // never changed again
}

func newHistory(log bus.Log, tree *follow.Follower[view.State]) *history {
	h := &history{log: log, tree: tree, turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

// cutPast splits /@<when>/rest.
func cutPast(path string) (when, rest string) {
	when, rest, _ = strings.Cut(path[2:], "/")
	return when, "/" + rest
}

// mentionsPast says whether a read may ask for a past tree. A false alarm costs it its
// place in a pipeline of writes, nothing else.
func mentionsPast(op wire.Op, body []byte) bool {
	switch op {
	case wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber:
		return len(body) > 6 && body[4] == '/' && body[5] == '@'
	case wire.OpMultiRead:
		return bytes.Contains(body, []byte("/@"))
	}
	return false
}

// slowPast answers a read that mentions past trees: they are found first, so that none
// is replayed under the tree's lock, and no more of them for one request than are kept.
func (s *Server) slowPast(ctx context.Context, c *conn, h wire.RequestHeader) error {
	past := map[string]pastAnswer{}
	err := c.pauseReading(ctx, func(ctx context.Context) error {
		for path := range pathsOf(h.Op, c.in) {
			if !isPast(path) {
				continue
			}
			when, _ := cutPast(path)
			if _, ok := past[when]; ok {
				continue
			}
			if len(past) == historySize {
				return nil // the rest is throttled
			}
			past[when] = s.resolve(ctx, when)
			if ctx.Err() != nil {
				return ctx.Err() // nobody waits for the others
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.tree.Read(func(t view.State) { s.read(c, place{live: t, past: past}, h, &c.in) })
	return nil
}

// pathsOf are the paths that a read asks for, up to where it cannot be read.
func pathsOf(op wire.Op, ask wire.Reader) iter.Seq[string] {
	return func(yield func(string) bool) {
		if op != wire.OpMultiRead {
			yield(ask.Text())
			return
		}
		for {
			var m wire.MultiHeader
			var q wire.PathWatch
			if m.Decode(&ask); m.Done {
				return
			}
			if q.Decode(&ask); ask.Err() != nil || !yield(q.Path) {
				return
			}
		}
	}
}

// resolve finds a past tree.
func (s *Server) resolve(ctx context.Context, when string) pastAnswer {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SyncTimeout)
	defer cancel()
	state, err := s.history.at(ctx, when)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return pastAnswer{code: wire.NoNode}
	case errors.Is(err, context.DeadlineExceeded):
		s.logger.Warn("past tree not ready in time", "when", when, "err", err)
		return pastAnswer{code: wire.OperationTimeout}
	case err != nil:
		s.logger.Warn("past tree not readable", "when", when, "err", err)
		return pastAnswer{code: wire.SystemError}
	}
	return pastAnswer{t: state}
}

// at is the tree after the event at a sequence, or after the last one stored by a time.
// What is neither, or has not come yet, is bus.ErrNotFound.
func (h *history) at(ctx context.Context, when string) (*view.State, error) {
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

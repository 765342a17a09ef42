package ensemble

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/bus"
)

// claim takes the mark over, after which no earlier mirror can write.
func (r *term) claim(ctx context.Context) error {
	at := r.cfg.Chroot + r.node
	for {
		data, st, err := r.readCursor(ctx)
		if errors.Is(err, zk.ErrNoNode) {
			if err := r.s.ensure(ctx, at); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		r.cursor = cursor{}
		if len(data) > 0 {
			if err := json.Unmarshal(data, &r.cursor); err != nil {
				return fmt.Errorf("the mark at %s is damaged, delete it to compare by value: %w", at, err)
			}
			r.own(st.Mzxid)
			if err := r.recognize(ctx); err != nil {
				return err
			}
		}
		if r.claimed && r.Writer != r.me && r.Writer != "" {
			r.claimed = false
			return errFenced
		}
		r.version = st.Version
		if err = r.write(ctx, nil); err == nil {
			r.claimed = true
		}
		if !errors.Is(err, errFenced) {
			return err
		}
	}
}

// recognize forgets a mark that is of another log: then whatever stands in the ensemble
// was made in the ensemble, and nothing there was ours to remove.
func (r *term) recognize(ctx context.Context) error {
	if r.cfg.Log == nil || r.ID == "" {
		return nil
	}
	e, err := r.cfg.Log.Get(ctx, r.At)
	switch {
	case errors.Is(err, bus.ErrTrimmed):
		return nil
	case err != nil && !errors.Is(err, bus.ErrNotFound):
		return fmt.Errorf("find the event at which the ensemble was left: %w", err)
	case err == nil && e.Header.ID == r.ID:
		return nil
	}
	r.logger.Warn("the ensemble shows another log: its nodes are taken for foreign ones", "servers", r.cfg.Servers, "seq", r.At)
	r.cursor = cursor{}
	return nil
}

// readCursor waits for a connection as long as the session may come back.
func (r *term) readCursor(ctx context.Context) ([]byte, *zk.Stat, error) {
	type node struct {
		data []byte
		st   *zk.Stat
	}
	at := r.cfg.Chroot + r.node
	for wait := 20 * time.Millisecond; ; wait = r.pause(ctx, wait) {
		n, err := call(ctx, r.s, func() (n node, err error) {
			if _, err = r.s.conn.Sync(at); err == nil {
				n.data, n.st, err = r.s.conn.Get(at)
			}
			return n, err
		})
		if !unconnected(err) || ctx.Err() != nil {
			return n.data, n.st, err
		}
	}
}

func unconnected(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
}

// write does the operations and updates the mark, in one multi. A path that stands in
// the way of the others is left for later.
func (r *term) write(ctx context.Context, batch []op) error {
	before := r.Seq
	if r.until != 0 && len(r.later) == 0 {
		r.Seq = r.until // with this multi everything up to there is written, or nothing of it
	}
	r.Writer = r.me
	r.count++
	r.Mirror.mu.Lock()
	r.At, r.ID = r.at, r.id
	r.Mirror.mu.Unlock()
	data, err := json.Marshal(struct {
		cursor
		N uint64 `json:"n"`
	}{r.cursor, r.count})
	if err != nil {
		return err
	}
	all := []any{&zk.SetDataRequest{Path: r.cfg.Chroot + r.node, Data: data, Version: r.version}}
	for _, o := range batch {
		all = append(all, o.ops...)
	}
	for {
		results, failed, err := r.s.multi(ctx, all)
		switch {
		case err == nil:
			r.wrote(results[0].Stat, batch)
			return nil
		case failed > 0:
			r.Seq = before // nothing of it is written: what was made here since is not missing there
			if len(batch) == 1 {
				r.postpone(batch[0].path, batch[0].v, batch[0].seq, err)
				return nil
			}
			r.until = 0
			for i := range batch {
				if err := r.write(ctx, batch[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		case failed == 0 && !errors.Is(err, zk.ErrBadVersion):
			return fmt.Errorf("write the mark at %s%s: %w", r.cfg.Chroot, r.node, err)
		case failed < 0 && !unconnected(err):
			return fmt.Errorf("write to the ensemble: %w", err)
		}
		// Perhaps it has happened, and only its answer was lost.
		now, st, err := r.readCursor(ctx)
		if err != nil {
			return err
		}
		if bytes.Equal(now, data) {
			r.wrote(st, batch)
			return nil
		}
		if st.Version != r.version {
			return errFenced
		}
	}
}

func (r *term) wrote(st *zk.Stat, batch []op) {
	r.version, r.stale, r.newest = st.Version, false, st.Mzxid
	r.own(st.Mzxid)
	r.writes.Add(float64(len(batch)))
}

// settleCursor brings the mark over there up to date when it has fallen behind.
func (r *term) settleCursor(ctx context.Context) error {
	if !r.stale {
		return nil
	}
	return r.write(ctx, nil)
}

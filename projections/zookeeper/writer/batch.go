package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/internal/retry"
)

const (
	batchEvents = 1000                 // proposals of one append: as many events as the bus takes
	batchBytes  = 4 << 20              // of one append
	retryFirst  = 5 * time.Millisecond // between attempts while the bus does not answer
	retryLast   = 500 * time.Millisecond
	patience    = 5 // attempts that fail before the role's health shows it
)

// writesProblem is what the role's health calls writes that cannot be stored.
const writesProblem = "zookeeper writes"

// append stores batch after batch. What waits while one is being stored is the next.
func (w *Writer) append(ctx context.Context) error {
	peak := 0 // proposals of late not decided at a time
	for {
		batch, err := w.queue.Next(ctx)
		if err != nil {
			return err
		}
		if batch[0].event == nil {
			w.queue.Return(batch[1:])
			batch[0].finish(w.last, nil, nil)
			continue
		}
		n := slices.IndexFunc(batch, func(p *proposal) bool { return p.event == nil })
		if n < 0 {
			n = len(batch)
		}
		queued := w.queue.Len()
		peak = max(len(batch)+queued+int(w.under.Load()), peak-peak/8)
		n = min(n, atMost(peak, queued))
		packs, later := coalesce(batch[:n])
		w.queue.Return(slices.Concat(later, batch[n:]))
		began := time.Now()
		err = w.store(ctx, packs)
		expect := 0
		if n >= packFrom {
			expect = n / 2 // else every other event holds but a few
		}
		w.queue.Expect(expect, time.Since(began))
		if err != nil && ctx.Err() == nil && (errors.Is(err, events.ErrInvalid) || errors.Is(err, bus.ErrTooLarge)) {
			err = w.splitRefused(ctx, packs)
		}
		if err != nil {
			for _, in := range packs {
				for _, p := range in {
					p.finish(0, nil, err)
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errFenced) {
			return err
		}
	}
}

// splitRefused stores one by one what could not be stored together, and refuses the culprits.
func (w *Writer) splitRefused(ctx context.Context, packs [][]*proposal) error {
	for _, in := range packs {
		for i, p := range in {
			err := w.store(ctx, [][]*proposal{in[i : i+1]})
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return err
			}
			p.finish(0, nil, err)
		}
	}
	return nil
}

// store appends an event for each pack behind everything else on the tree's subject. While the bus
// does not answer it repeats the same ids. A conflict is somebody else's event: it catches
// up and goes on, unless that was the fence of another writer, who had the lease meanwhile.
func (w *Writer) store(ctx context.Context, packs [][]*proposal) (err error) {
	drafts := make([]bus.Draft, 0, len(packs))
	w.mu.Lock()
	for _, in := range packs {
		id := w.prefix + strconv.FormatUint(w.count.Add(1), 36)
		drafts = append(drafts, bus.Draft{
			Subject: w.subject, Event: pack(in), Header: events.Header{ID: id, Source: w.cfg.Source},
			Expect: bus.Any, Binary: true,
		})
		w.waiting[id] = in
		w.under.Add(int64(len(in)))
	}
	w.mu.Unlock()
	defer func() {
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, d := range drafts {
				w.forget(d.Header.ID)
			}
		}
	}()
	defer w.cfg.Health.OK(writesProblem)
	wait := retry.New(retryFirst, retryLast)
	for try := 0; ; try++ {
		if w.fenced() {
			return errFenced
		}
		drafts[0].Expect = w.last
		seqs, err := w.log.Append(ctx, drafts...)
		if err != nil && try >= patience {
			w.cfg.Health.Fail(writesProblem, err)
		}
		switch {
		case err == nil:
			w.last = seqs[len(seqs)-1]
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errNotWriter, err)
		case errors.Is(err, bus.ErrRepeated): // stored, by an attempt whose answer was lost, and not seen everywhere yet
			if err := w.catchUp(ctx); err != nil {
				return err
			}
			if w.decided(drafts) {
				return nil
			}
		case errors.Is(err, bus.ErrConflict):
			w.logger.Warn("zookeeper write conflicts with another registry's", "bzid", w.cfg.BZID, "expected", w.last)
			if err := w.catchUp(ctx); err != nil {
				return err
			}
		case !bus.Retryable(err):
			return err
		}
		if err := wait.Wait(ctx); err != nil {
			return fmt.Errorf("%w: %w", errNotWriter, err)
		}
	}
}

// decided says whether every event of an append is in the tree.
func (w *Writer) decided(drafts []bus.Draft) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(drafts, func(d bus.Draft) bool { return w.waiting[d.Header.ID] != nil })
}

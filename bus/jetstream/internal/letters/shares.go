package letters

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/stream"
)

// recount is how long a refusal for lack of room stands before the letters are looked at
// again: somebody may have removed some.
const recount = 10 * time.Second

// shares is what this process knows of the room that the namespace's letters take. Each
// process counts for itself, so several that park for one source may exceed its share by
// a part of it; what the stream takes in all, the server limits.
type shares struct {
	mu    sync.Mutex
	known bool
	use   wire.Usage
	limit int64     // of the stream, -1: none
	at    time.Time // of the count
	added int64     // by this process since the count
	msgs  uint64    // state of the stream at the count
	last  uint64
}

// fits is whether the letter has room, as far as it is known; stale: it has to be counted.
func (s *shares) fits(source string, cost int64) (stale bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || (s.limit > 0 && s.added > s.limit/32) {
		return true, nil
	}
	err = s.use.Fits(source, cost, s.limit)
	return err != nil && time.Since(s.at) > recount, err
}

func (s *shares) add(source string, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added += cost
	s.use.Add(source, cost)
}

// forget has the letters counted again at the next one.
func (s *shares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = false
}

// unchanged says whether, by the stream's state, no message has left it since the count,
// and takes note that this was looked at.
func (s *shares) unchanged(st jetstream.StreamState, limit int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.added > limit/32 || limit != s.limit || st.LastSeq < s.last || st.Msgs != s.msgs+st.LastSeq-s.last {
		return false
	}
	s.at = time.Now()
	return true
}

func (s *shares) set(use wire.Usage, st jetstream.StreamState, limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.use, s.limit, s.at, s.added = true, use, limit, time.Now(), 0
	s.msgs, s.last = st.Msgs, st.LastSeq
}

// admit says with a bus.ErrFull that a letter exceeds a share.
func (l *Letters) admit(ctx context.Context, source string, cost int64) error {
	stale, err := l.shares.fits(source, cost)
	if !stale {
		return err
	}
	var st jetstream.StreamState
	var limit int64
	err = l.onStream(ctx, wire.LetterStream, func(_ context.Context, s jetstream.Stream) error {
		st, limit = s.CachedInfo().State, s.CachedInfo().Config.MaxBytes
		return nil
	})
	if err != nil {
		return fmt.Errorf("count the dead letters: %w", err)
	}
	if !l.shares.unchanged(st, limit) {
		var use wire.Usage
		err := l.stream(wire.LetterStream).Scan(ctx, l.filter()+".>", false, func(m *stream.Message) error {
			stream, _, _ := wire.ParseLetter(m.Subject) // "": marks, and what is no letter
			use.Add(wire.ShareOf(stream), wire.LetterCost(m.Subject, m.Size()))
			return nil
		})
		if err != nil {
			return fmt.Errorf("count the dead letters: %w", err)
		}
		l.shares.set(use, st, limit)
	}
	_, err = l.shares.fits(source, cost)
	return err
}

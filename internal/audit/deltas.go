package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/delta"
)

// Delta is one message of the sync stream, taken apart.
type Delta struct {
	Seq   uint64
	Time  time.Time
	Dense bool // on the subject of the dense variables
	*delta.Delta
}

// ReadDeltas reads the job's deltas up to sequence until (0: to the present end), in
// order, with those dropped that a follower drops: of an epoch below one it has seen on
// the same subject. first is 1, or the oldest sequence kept when the stream has
// discarded some.
func ReadDeltas(ctx context.Context, d bus.Deltas, bzid, job string, until uint64) (all []Delta, first uint64, err error) {
	last, err := d.Last(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("read the deltas: %w", err)
	}
	if until == 0 {
		until = last
	}
	if until > last {
		return nil, 0, fmt.Errorf("the deltas end at %d: sequence %d, which the report names, is not there; check --nats", last, until)
	}
	if until == 0 {
		return nil, 1, nil
	}
	rows := bus.DeltaSubject(bzid, job, "*")
	first = 1
	for {
		all = nil
		epochs := map[string]uint64{}
		err = d.Follow(ctx, first, until, []string{rows, rows + ".dense"}, func(m bus.StoredDelta) error {
			x := Delta{Seq: m.Seq, Time: m.Time, Dense: strings.HasSuffix(m.Subject, ".dense"), Delta: new(delta.Delta)}
			if err := proto.Unmarshal(m.Data, x.Delta); err != nil {
				return fmt.Errorf("delta %d on %s does not decode: %w", m.Seq, m.Subject, err)
			}
			if x.GetEpoch() < epochs[m.Subject] {
				return nil
			}
			epochs[m.Subject] = x.GetEpoch()
			all = append(all, x)
			return nil
		})
		if !errors.Is(err, bus.ErrTrimmed) {
			break
		}
		kept, kerr := firstKept(ctx, d, first, until)
		if kerr != nil {
			return nil, 0, kerr
		}
		if kept > until {
			return nil, kept, nil // all of them are gone
		}
		first = kept
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the deltas from %d to %d: %w", first, until, err)
	}
	return all, first, nil
}

// firstKept finds the oldest sequence in (gone, last] that is still there; last+1: none.
// The stream discards from its beginning, so bisection finds it.
func firstKept(ctx context.Context, d bus.Deltas, gone, last uint64) (uint64, error) {
	lo, hi := gone+1, last+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		_, err := d.Get(ctx, mid)
		switch {
		case err == nil:
			hi = mid
		case errors.Is(err, bus.ErrNotFound), errors.Is(err, bus.ErrTrimmed):
			lo = mid + 1
		default:
			return 0, fmt.Errorf("find the oldest delta kept: %w", err)
		}
	}
	return lo, nil
}

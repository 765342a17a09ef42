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

// Deltas are a job's, as far as the stream still has them.
type Deltas struct {
	All     []Delta // in order
	First   uint64  // 1, or the oldest sequence kept when the stream has discarded some
	Missing uint64  // sequences that are not there behind First: the stream discards its oldest only, so it was damaged
}

// ReadDeltas reads the job's deltas up to sequence until (0: to the present end), with
// those dropped that a follower drops: of an epoch below one it has seen on the same
// subject.
func ReadDeltas(ctx context.Context, d bus.Deltas, bzid, job string, until uint64) (Deltas, error) {
	last, err := d.Last(ctx)
	if err != nil {
		return Deltas{}, fmt.Errorf("read the deltas: %w", err)
	}
	if until == 0 {
		until = last
	}
	if until > last {
		return Deltas{}, fmt.Errorf("the deltas end at %d: sequence %d, which the report names, is not there; check --nats", last, until)
	}
	out := Deltas{First: 1}
	if until == 0 {
		return out, nil
	}
	for {
		next := out.First
		out.All, out.Missing = nil, 0
		epochs := map[string]uint64{}
		err = d.Follow(ctx, out.First, until, []string{deltaRoot + ">"}, func(m bus.StoredDelta) error {
			out.Missing += m.Seq - next
			next = m.Seq + 1
			return out.add(m, bus.DeltaSubject(bzid, job, ""), epochs)
		})
		if !errors.Is(err, bus.ErrTrimmed) {
			if err == nil {
				out.Missing += until + 1 - next
			}
			break
		}
		if out.First, err = d.First(ctx); err != nil {
			return Deltas{}, fmt.Errorf("find the oldest delta kept: %w", err)
		}
		if out.First > until {
			return Deltas{First: out.First}, nil // all of them are gone
		}
	}
	if err != nil {
		return Deltas{}, fmt.Errorf("read the deltas from %d to %d: %w", out.First, until, err)
	}
	return out, nil
}

// deltaRoot begins the subjects of every job's deltas in every namespace.
const deltaRoot = "msync."

// add appends m when it is of the job whose subjects begin with prefix.
func (d *Deltas) add(m bus.StoredDelta, prefix string, epochs map[string]uint64) error {
	shard, ours := strings.CutPrefix(m.Subject, prefix)
	if !ours {
		return nil
	}
	_, dense := strings.CutSuffix(shard, ".dense")
	x := Delta{Seq: m.Seq, Time: m.Time, Dense: dense, Delta: new(delta.Delta)}
	if err := proto.Unmarshal(m.Data, x.Delta); err != nil {
		return fmt.Errorf("delta %d on %s does not decode: %w", m.Seq, m.Subject, err)
	}
	if x.GetEpoch() < epochs[m.Subject] {
		return nil
	}
	epochs[m.Subject] = x.GetEpoch()
	d.All = append(d.All, x)
	return nil
}

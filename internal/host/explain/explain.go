// Package explain goes from an answer back to what it stood on: rows, deltas, training records
// and facts.
package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/shard"
	"github.com/monolith-go/monolith/internal/host/history"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Explanation is the way from an answer back to the training records.
type Explanation struct {
	RequestID   string         `json:"requestId"`
	Predictions []explained    `json:"predictions"`
	Deltas      []deltaOrigin  `json:"deltas"` // by sequence
	Facts       []history.Line `json:"facts"`  // that put the model and its writers there
}

type explained struct {
	*impression.Impression
	Missing []string `json:"missing,omitempty"` // what can no longer be said, and why
}

// name is the row as people know it: by the feature and its value, as it was
// given where the id is a hash. Servers before features were
// written left the table alone.
func name(r impression.Row) string {
	if r.Feature == "" {
		return fmt.Sprintf("row %d of table %s", r.ID&modelspec.MaxID, r.Table)
	}
	if r.Text != "" {
		return fmt.Sprintf("%s %q (table %s)", r.Feature, r.Text, r.Table)
	}
	return fmt.Sprintf("%s %d (table %s)", r.Feature, r.ID&modelspec.MaxID, r.Table)
}

// scored is the score, or those of all tasks.
func (p explained) scored() string {
	if len(p.Scores) == 0 {
		return fmt.Sprintf("%.4f", p.Score)
	}
	var all []string
	for _, task := range slices.Sorted(maps.Keys(p.Scores)) {
		all = append(all, fmt.Sprintf("%.4f (%s)", p.Scores[task], task))
	}
	return strings.Join(all, ", ")
}

// rows writes those of a prediction by feature, each feature's in their order.
func (p explained) rows(b *strings.Builder) {
	for i, r := range p.Rows {
		if r.SyncSeq == 0 {
			fmt.Fprintf(b, "    %s: never learnt by shard %d, so zeros or the export's row\n", name(r), r.Shard)
		} else {
			fmt.Fprintf(b, "    %s: from replica %d of shard %d, written by delta %d\n", name(r), r.Replica, r.Shard, r.SyncSeq)
		}
		if last := i+1 == len(p.Rows) || p.Rows[i+1].Feature != r.Feature; last && p.More[r.Feature] > 0 {
			fmt.Fprintf(b, "    %s: %d more rows, which the impression does not list\n", r.Feature, p.More[r.Feature])
		}
	}
}

// deltaOrigin is one message of the sync stream and what it was learnt from.
type deltaOrigin struct {
	Seq         uint64       `json:"seq"`
	Time        time.Time    `json:"time"`
	Shard       uint32       `json:"shard"` // training shard
	Epoch       uint64       `json:"epoch"`
	Step        uint64       `json:"step"`
	Ranges      []kafkaRange `json:"ranges"`             // learnt since the delta before that names any
	RangesAt    uint64       `json:"rangesAt,omitempty"` // the later delta that names them, where other rows of theirs had to wait
	Traceparent string       `json:"traceparent,omitempty"`
}

type kafkaRange struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"` // not included
}

// Find explains the answers to a request by its id, from the impressions on the topic
// predictions and the logs behind b.
func Find(ctx context.Context, b bus.Bus, access *kafka.Access, brokers []string, bzid, predictions, id string) (*Explanation, error) {
	e := &Explanation{RequestID: id}
	// Decoding each prediction ever made would take most of the time.
	mark, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	_, _, err = access.Scan(ctx, brokers, predictions, func(r kafka.Record) error {
		if !bytes.Contains(r.Value, mark) {
			return nil
		}
		if i, err := impression.Decode(r.Value); err == nil && i.RequestID == id && !i.Shadow {
			e.Predictions = append(e.Predictions, explained{Impression: i})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(e.Predictions) == 0 {
		return nil, fmt.Errorf("no impression of request %q on topic %s: only requests that ask for it by x-impression: 1, and a sample of the others, leave one", id, predictions)
	}
	seen := map[uint64]bool{}
	shards := map[string]bool{}
	for i := range e.Predictions {
		p := &e.Predictions[i]
		seqs := []uint64{p.DenseSeq}
		for _, row := range p.Rows {
			seqs = append(seqs, row.SyncSeq)
		}
		for _, seq := range seqs {
			if seq == 0 || seen[seq] {
				continue
			}
			seen[seq] = true
			origin, d, err := findDelta(ctx, b.Deltas(), seq)
			if errors.Is(err, bus.ErrNotFound) {
				p.Missing = append(p.Missing, fmt.Sprintf("delta %d is no longer in the stream", seq))
				continue
			}
			if err != nil {
				return nil, err
			}
			e.Deltas = append(e.Deltas, origin)
			shards[shard.Aggregate(d.GetJob(), d.GetShard())] = true
		}
	}
	slices.SortFunc(e.Deltas, func(a, b deltaOrigin) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return e, e.facts(ctx, b.Log(), bzid, shards)
}

// findDelta reads the delta at seq; the ranges of a flush stand on its last chunk, which
// follows on the same subject. A large flush is published in several calls, so that other
// shards' deltas may lie in between. A flush without ranges, when rows that they made wait, is
// followed by the one that names them.
func findDelta(ctx context.Context, deltas bus.Deltas, seq uint64) (o deltaOrigin, d *delta.Delta, err error) {
	first, err := deltas.Get(ctx, seq)
	if err != nil {
		return o, nil, err
	}
	last, err := deltas.LastOf(ctx, first.Subject)
	if err != nil {
		return o, nil, err
	}
	errFound := errors.New("found")
	err = deltas.Follow(ctx, seq, max(last, seq), []string{first.Subject}, func(m bus.StoredDelta) error {
		x := new(delta.Delta)
		if err := proto.Unmarshal(m.Data, x); err != nil {
			return fmt.Errorf("delta %d: %w", m.Seq, err)
		}
		switch {
		case d != nil && x.GetEpoch() != d.GetEpoch():
			return errFound // whoever wrote it has never said of what
		case d == nil && m.Seq > seq && x.GetChunk() == 0:
			return fmt.Errorf("delta %d: its last chunk is missing: %w", seq, bus.ErrNotFound)
		case x.GetChunk()+1 < x.GetChunks():
			return nil
		case d == nil:
			d = x
			o = deltaOrigin{Seq: seq, Time: first.Time.UTC(), Shard: d.GetShard(), Epoch: d.GetEpoch(), Step: d.GetStep(), Traceparent: first.Traceparent}
		case len(x.GetRanges()) > 0:
			o.RangesAt = m.Seq
		}
		for _, r := range x.GetRanges() {
			o.Ranges = append(o.Ranges, kafkaRange{r.GetPartition(), r.GetFrom(), r.GetTo()})
		}
		if len(o.Ranges) == 0 && d.GetAssigned() == nil {
			return nil
		}
		return errFound
	})
	switch {
	case errors.Is(err, errFound), err == nil && d != nil:
		return o, d, nil
	case err == nil, errors.Is(err, bus.ErrTrimmed):
		return o, nil, fmt.Errorf("delta %d: its last chunk is missing: %w", seq, bus.ErrNotFound)
	default:
		return o, nil, err
	}
}

// facts adds the model's last load and plan, and the epochs of the shards, as they were
// when the answer was made.
func (e *Explanation) facts(ctx context.Context, log bus.Log, bzid string, shards map[string]bool) error {
	p := e.Predictions[0]
	until, err := log.SeqAt(ctx, time.UnixMicro(p.TimeUS))
	if err != nil || until == 0 {
		return err
	}
	last := map[string]events.Recorded{}
	err = log.Follow(ctx, 1, until, func(r events.Recorded) error {
		parts, perr := r.Subject.Parse()
		if perr != nil || r.Err != nil || parts.BZID != bzid || parts.Request {
			return nil
		}
		switch ev := r.Event.(type) {
		case *model.Event:
			if parts.Aggregate == p.Model {
				last[catalog.Type(ev)] = r
			}
		case *publish.Event:
			switch {
			case parts.Aggregate != p.Model:
			case ev.GetPlanFailed() != nil: // said beside the plan that stays in force
				last["planFailed"] = r
			case ev.GetCanaryDeclared() != nil, ev.GetCanaryDecided() != nil: // likewise
				last["canary"] = r
			default:
				last["publish"] = r
				delete(last, "planFailed")
			}
		case *shard.Event:
			if shards[parts.Aggregate] {
				last[parts.Aggregate] = r
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range last {
		body, err := events.Marshal(r.Event)
		if err != nil {
			return err
		}
		line := history.LineOf(r)
		line.Type, line.Event = catalog.Type(r.Event), body
		e.Facts = append(e.Facts, line)
	}
	slices.SortFunc(e.Facts, func(a, b history.Line) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return nil
}

// Text writes it for people.
func (e *Explanation) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "request %s\n", e.RequestID)
	for _, p := range e.Predictions {
		fmt.Fprintf(&b, "\n  row %d of %s version %d scored %s at %s\n", p.Row, p.Model, p.Version, p.scored(), time.UnixMicro(p.TimeUS).UTC().Format(time.RFC3339Nano))
		p.rows(&b)
		fmt.Fprintf(&b, "    dense variables: delta %d\n", p.DenseSeq)
		for _, m := range p.Missing {
			fmt.Fprintf(&b, "    %s\n", m)
		}
	}
	fmt.Fprintf(&b, "\ndeltas\n")
	for _, d := range e.Deltas {
		fmt.Fprintf(&b, "  %d at %s: training shard %d, epoch %d, step %d, learnt", d.Seq, d.Time.Format(time.RFC3339Nano), d.Shard, d.Epoch, d.Step)
		for _, r := range d.Ranges {
			fmt.Fprintf(&b, " partition %d [%d, %d)", r.Partition, r.From, r.To)
		}
		if len(d.Ranges) == 0 {
			fmt.Fprint(&b, " nothing new")
		}
		if d.RangesAt > 0 {
			fmt.Fprintf(&b, ", all of which followers had with delta %d", d.RangesAt)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "\nfacts behind it\n")
	for _, f := range e.Facts {
		fmt.Fprintf(&b, "  %6d  %s  %s\n", f.Seq, strings.TrimPrefix(f.Subject, events.Root+"."), f.Event)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

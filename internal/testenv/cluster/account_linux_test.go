package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/audit"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/projections/lineage"
)

// movieSlot is that of the movie's feature.
const movieSlot = 2

func (w *world) must(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// soon ends after a while.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	w.t.Cleanup(cancel)
	return ctx
}

// settled holds what was promised of everything that was written, once the traffic has ended.
func (f *traffic) settled() {
	w := f.w
	w.t.Helper()
	w.must("ratings and commands", f.errors())
	_, ends, err := kafka.Plain.Bounds(w.soon(), w.kafka.Bootstrap, host.RatingsTopic)
	w.must("find the ends of the topic", err)
	w.must("wait for the trainers", f.job.AwaitTrained(w.soon(), shards, ends, func(int64) {}))
	saved := f.checkpoint()
	w.gather()
	f.stored()
	f.once(ends)
	f.agree(saved)
	f.logged()
	letters, err := f.job.Bus.DeadLetters().List(w.soon())
	w.must("list the letters", err)
	if len(letters) > 0 {
		w.t.Errorf("%d letters, the first: %+v", len(letters), letters[0])
	}
	w.verified()
}

// checkpoint makes one of everything that is learnt.
func (f *traffic) checkpoint() (saved *training.Checkpoint) {
	f.w.t.Helper()
	_, err := f.job.Checkpoint(f.w.soon(), "compare")
	f.w.must("make a checkpoint", err)
	f.job.Lineage.Read(func(s lineage.State) {
		all := s.Jobs[host.JobName].Checkpoints
		saved = all[len(all)-1].V
	})
	return saved
}

// gather copies what the job has written on each machine into one folder here, as a person does who
// wants to read all of it on one machine.
func (w *world) gather() {
	w.t.Helper()
	w.must("empty the folder", os.RemoveAll(w.path("training")))
	for _, m := range w.machines {
		from := filepath.Join(m.disk, "training")
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if out, err := exec.Command("cp", "-r", from, w.data).CombinedOutput(); err != nil {
			w.t.Fatalf("copy %s: %v: %s", from, err, out)
		}
	}
}

// stored holds that the topic has each acked rating once, where that was said, and nothing twice.
func (f *traffic) stored() {
	w := f.w
	w.t.Helper()
	seen := map[int]place{}
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 5 {
			w.t.Errorf(format, args...)
		}
	}
	_, _, err := kafka.Plain.Scan(w.soon(), w.kafka.Bootstrap, host.RatingsTopic, func(r kafka.Record) error {
		i, err := strconv.Atoi(r.Headers[rating.HeaderIndex])
		if err != nil {
			return fmt.Errorf("the record at %d/%d is none of ours: %w", r.Partition, r.Offset, err)
		}
		if at, twice := seen[i]; twice {
			complain("rating %d stands at %v and at %d/%d", i, at, r.Partition, r.Offset)
		}
		seen[i] = place{r.Partition, r.Offset}
		return nil
	})
	w.must("read the topic", err)
	f.note(func() {
		for i, at := range f.acked {
			if seen[i] != at {
				complain("rating %d was acked at %v and stands at %v", i, at, seen[i])
			}
		}
		if len(f.acked) != f.next || len(seen) != f.next {
			w.t.Errorf("%d ratings were written, %d acked, %d are stored", f.next, len(f.acked), len(seen))
		}
	})
}

// once holds that each shard learnt every offset once.
func (f *traffic) once(ends map[int32]int64) {
	w := f.w
	w.t.Helper()
	deltas, err := audit.ReadDeltas(w.soon(), f.job.Bus.Deltas(), f.job.Conn.BZID, host.JobName, 0)
	w.must("read the deltas", err)
	history, err := audit.ReadHistory(w.soon(), f.job.Bus.Log(), f.job.Conn.BZID, host.JobName, 0)
	w.must("read the history", err)
	for shard := range uint32(shards) {
		if c := audit.Tiles(deltas.All, shard, history.Ready[shard], ends, deltas.First); !c.OK {
			w.t.Error(c)
		}
	}
}

// agree holds that the checkpoint has a row of each rating's movie, and every replica the checkpoint's
// rows.
func (f *traffic) agree(saved *training.Checkpoint) {
	w := f.w
	w.t.Helper()
	truth, err := audit.Truth(nil, saved)
	w.must("read the checkpoint", err)
	missing := 0
	for i := range f.next {
		if truth.Tables["movie"][modelspec.FID(movieSlot, int64(firstMovie+i))] == nil {
			missing++
		}
	}
	if missing > 0 {
		w.t.Errorf("the checkpoint has no row of %d movies of %d", missing, f.next)
	}
	twin, err := w.files("tfs-supervisor").Twin() // rows are between those of one role
	w.must("read the supervisor's keys", err)
	wait.Until(w.t, "the replicas to agree with the checkpoint", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		serving := f.job.Replicas(host.ModelName)
		if len(serving) != shards*replicas {
			return fmt.Errorf("%d replicas serve", len(serving))
		}
		for key, r := range serving {
			c, err := rowwire.Dial(ctx, r.GetRowsAddress(), twin)
			if err != nil {
				return fmt.Errorf("replica %s: %w", key, err)
			}
			check := truth.Agree(ctx, audit.Replica{Name: key, Model: host.ModelName, Shard: uint32(r.GetTask()), Rows: c}, shards)
			_ = c.Close() // it was read alone
			if !check.OK {
				return fmt.Errorf("%s", check)
			}
		}
		return nil
	})
}

// logged holds that the log has each command's fact at the sequence with which it was acked, and that
// folding it gives what the roles hold.
func (f *traffic) logged() {
	w := f.w
	w.t.Helper()
	last, err := f.job.Bus.Log().Last(w.soon())
	w.must("find the end of the log", err)
	at := map[uint64]string{}
	w.must("read the log", f.job.Bus.Log().Follow(w.soon(), 1, last, func(r events.Recorded) error {
		if e, ok := r.Event.(*layout.Event); ok {
			for _, x := range e.GetEntriesAdded().GetEntries() {
				at[r.Seq] = "portal.addLayoutEntry " + x
			}
			for _, x := range e.GetEntriesRemoved().GetEntries() {
				at[r.Seq] = "portal.removeLayoutEntry " + x
			}
		}
		return nil
	}))
	for seq, what := range f.commands {
		if at[seq] != what {
			w.t.Errorf("%s was acked at %d, where the log has %q", what, seq, at[seq])
		}
	}
	hashes, err := f.job.LiveHashes(w.soon())
	w.must("ask for hashes", err)
	equal, sentence, err := audit.ReplayEqual(w.soon(), f.job.Bus.Log(), f.job.Conn.BZID, hashes)
	w.must("replay", err)
	if !equal {
		w.t.Error(sentence)
	}
}

// verified runs monolith verify on what was gathered.
func (w *world) verified() {
	w.t.Helper()
	args := append([]string{"verify", "--dir", w.data, "--nats", w.natsURL(), "--nats-creds", filepath.Join(w.keys, "reader.nk")}, w.files("reader").Args("nats")...)
	for _, broker := range w.kafka.Bootstrap {
		args = append(args, "--kafka", broker)
	}
	out, err := exec.Command(w.binary, args...).CombinedOutput()
	if err != nil {
		w.t.Errorf("verify: %v\n%s", err, out)
	}
	w.t.Logf("verify: %s", out[max(0, len(out)-300):])
}

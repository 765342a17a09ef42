package trainertest

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
)

// Commands has n shards answer the commands of a cut as told, and no rows.
func Commands(t *testing.T, b bus.Bus, n int, do func(shard int, endpoint string, payload []byte) (any, error)) {
	t.Helper()
	for i := range n {
		endpoints := map[string]bus.Handler{}
		for _, e := range []string{shardcmd.Offsets, shardcmd.Hold, shardcmd.Advance, shardcmd.Snapshot, shardcmd.Release, shardcmd.Rollback, shardcmd.Check, shardcmd.Discard} {
			endpoints[e] = func(_ context.Context, payload []byte) ([]byte, error) {
				reply, err := do(i, e, payload)
				if err != nil {
					return nil, err
				}
				if f, ok := reply.(*training.ShardFile); ok {
					return protojson.Marshal(f)
				}
				return json.Marshal(reply)
			}
		}
		stop, err := b.Commands().Serve(t.Context(), bus.Service{BZID: BZID, Name: shardcmd.Service(Job, i), Version: "1.0.0", Description: "scripted", Endpoints: endpoints})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
}

// Scripted is a shard that takes part in cuts and has no rows.
type Scripted struct {
	mu       sync.Mutex // held by commands
	State    shardcmd.State
	Reaches  func(targets map[int32]int64, n int) map[int32]int64 // where it stands after n advances; nil: where it stood
	advances int
	LetsGo   bool   // before the end of the cut
	As       uint32 // the shard that it says it is
	Sync     uint64
	Snapshot shardcmd.SnapshotRequest // the last one
	// Snapshotted is called before a snapshot is answered.
	Snapshotted func()
	Released    int
	Stuck       bool // it cannot be released
	Bytes       uint64
	Checked     []shardcmd.CheckRequest
	Fault       string // that it finds of every part
	Discarded   []shardcmd.DiscardRequest
	Full        bool // it deletes nothing
}

// Shards serves shards that stand at these offsets of partition 0.
func Shards(t *testing.T, b bus.Bus, at ...int64) []*Scripted {
	t.Helper()
	var all []*Scripted
	for i, next := range at {
		all = append(all, &Scripted{State: shardcmd.State{Next: map[int32]int64{0: next}}, As: uint32(i), Sync: uint64(100 + i)})
	}
	Commands(t, b, len(at), func(i int, endpoint string, payload []byte) (any, error) { return all[i].Command(endpoint, payload) })
	return all
}

// Command answers one command of a cut.
func (s *Scripted) Command(endpoint string, payload []byte) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cut struct{ Cut string }
	if err := json.Unmarshal(payload, &cut); err != nil {
		return nil, err
	}
	switch endpoint {
	case shardcmd.Hold:
		s.State.Held = cut.Cut
	case shardcmd.Advance:
		var r shardcmd.AdvanceRequest
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		if s.advances++; s.Reaches != nil {
			s.State.Next = s.Reaches(r.Targets, s.advances)
		}
	case shardcmd.Snapshot:
		if err := json.Unmarshal(payload, &s.Snapshot); err != nil {
			return nil, err
		}
		if s.Snapshotted != nil {
			s.Snapshotted()
		}
		if s.LetsGo {
			s.State.Held = ""
		}
		return &training.ShardFile{Shard: s.As, Path: "p", Hash: "h", SyncSeq: s.Sync, Bytes: s.Bytes}, nil
	case shardcmd.Check:
		var r shardcmd.CheckRequest
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		s.Checked = append(s.Checked, r)
		var a shardcmd.CheckResponse
		for _, p := range r.Parts {
			a.Parts = append(a.Parts, shardcmd.Verdict{Shard: p.Shard, Fault: s.Fault, Offsets: maps.Clone(s.State.Next)})
		}
		return a, nil
	case shardcmd.Discard:
		var r shardcmd.DiscardRequest
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, err
		}
		s.Discarded = append(s.Discarded, r)
		if s.Full {
			return nil, bus.Refuse(bus.CodeInternal, "the disk does not answer")
		}
	case shardcmd.Release:
		if s.Released++; s.Stuck {
			return nil, bus.Refuse(bus.CodeInternal, "stuck")
		}
		s.State.Held = ""
	}
	return s.State, nil
}

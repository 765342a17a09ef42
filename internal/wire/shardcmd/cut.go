// Package shardcmd is the commands that a parameter-server shard answers besides those for
// rows, as JSON: those of a checkpoint cut, and what its operators ask for.
//
// The order of a cut is hold, advance, snapshot, release, with the same Cut name on
// every shard. Each step may be repeated. A shard whose cut is not finished within its
// hold time-out releases itself; later steps of that cut are then refused as CONFLICT.
package shardcmd

import (
	"strconv"

	"github.com/monolith-go/monolith/events"
)

// The endpoints of a shard's service.
const (
	Offsets  = "offsets"  // {} -> State
	Hold     = "hold"     // HoldRequest -> State: new applies wait from here on
	Advance  = "advance"  // AdvanceRequest -> State: applies up to the targets go through
	Snapshot = "snapshot" // SnapshotRequest -> training.ShardFile as protojson
	Release  = "release"  // ReleaseRequest -> State
	Check    = "check"    // CheckRequest -> CheckResponse: looks at parts of a checkpoint on the shard's own disk
	Discard  = "discard"  // DiscardRequest -> {}: deletes from the shard's own disk
	Hash     = "hash"     // {} -> HashResponse
	Rollback = "rollback" // RollbackRequest -> State: deterministic mode only
)

// Service is the name of a shard's service: ps.<job>.<shard>, the job escaped.
func Service(job string, shard int) string {
	return "ps." + events.Escape(job) + "." + strconv.Itoa(shard)
}

// Command is the name to call an endpoint of a shard by.
func Command(job string, shard int, endpoint string) string {
	return Service(job, shard) + "." + endpoint
}

// State is where a shard stands.
type State struct {
	Epoch      uint64          `json:"epoch"`
	Step       uint64          `json:"step"`       // applies so far
	Turn       uint64          `json:"turn"`       // deterministic mode: batches learnt
	Generation uint64          `json:"generation"` // deterministic mode: of the timeline
	Checkpoint int64           `json:"checkpoint"` // restored from; 0: started empty
	Next       map[int32]int64 `json:"next"`       // partition -> next offset to learn
	Held       string          `json:"held"`       // cut that holds the shard; empty: none
}

// HoldRequest opens a cut. Cut names it and must be new: a cut that timed out or was
// released cannot be held again. Chief is the epoch of the chief's lease, 0: unknown. A
// later chief's cut ends the one that an earlier chief left behind, and a chief that was
// succeeded begins none. In deterministic mode the generation must be the shard's.
type HoldRequest struct {
	Cut        string `json:"cut"`
	Chief      uint64 `json:"chief,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// AdvanceRequest names, for each partition that any shard has recorded, the offset all
// shards are to reach. Turn is the count of batches there, in deterministic mode.
type AdvanceRequest struct {
	Cut     string          `json:"cut"`
	Targets map[int32]int64 `json:"targets"`
}

// SnapshotRequest writes <dir>/model.ckpt-<checkpoint>/ps_<i>/ and, with Export,
// <dir>/exported_models/ps_<i>/<version>/. An empty Dir is the shard's own. An id under
// which anything lies is refused: each attempt needs one of its own.
type SnapshotRequest struct {
	Cut        string `json:"cut"`
	Checkpoint int64  `json:"checkpoint"`
	Dir        string `json:"dir,omitempty"`
	Export     bool   `json:"export,omitempty"`
	Version    int64  `json:"version,omitempty"` // 0: the checkpoint's id
	Turn       uint64 `json:"turn,omitempty"`    // deterministic mode: must be the shard's
	Generation uint64 `json:"generation,omitempty"`
}

// ReleaseRequest ends a cut.
type ReleaseRequest struct {
	Cut string `json:"cut"`
}

// CheckRequest names parts of a checkpoint below Dir, which each shard has on a disk of its own. Deep
// reads every byte of them; else sizes and manifests are compared alone, and what is not on the disk is fetched
// from a host that has it. An empty Dir is the shard's own.
type CheckRequest struct {
	Checkpoint int64  `json:"checkpoint"`
	Dir        string `json:"dir,omitempty"`
	Deep       bool   `json:"deep,omitempty"`
	Parts      []Part `json:"parts"`
}

// Part is what one shard wrote, as its fact has it.
type Part struct {
	Shard uint32 `json:"shard"`
	Path  string `json:"path"`
	Hash  string `json:"hash"`
	Rows  uint64 `json:"rows"`
	Bytes uint64 `json:"bytes,omitempty"` // 0: not known
	// Manifest is the SHA-256 of its manifest; empty: not known.
	Manifest string `json:"manifest,omitempty"`
}

// CheckResponse has a verdict of each part, in their order.
type CheckResponse struct {
	Parts []Verdict `json:"parts"`
}

// Verdict is what was found of a part.
type Verdict struct {
	Shard   uint32          `json:"shard"`
	Fault   string          `json:"fault,omitempty"` // why it is not the one named; empty: it is
	Offsets map[int32]int64 `json:"offsets,omitempty"`
}

// DiscardRequest has a shard delete what its disk holds of checkpoints, and its parts of exports. What is not
// there is deleted. Chief is as in HoldRequest. What the shard's own facts exempt is refused.
type DiscardRequest struct {
	Chief       uint64  `json:"chief,omitempty"`
	Dir         string  `json:"dir,omitempty"`
	Checkpoints []int64 `json:"checkpoints,omitempty"`
	Exports     []int64 `json:"exports,omitempty"` // versions
}

// HashResponse identifies the shard's whole state, slots included.
type HashResponse struct {
	State
	Hash   string            `json:"hash"`   // of everything, as a checkpoint's manifest has it
	Tables map[string]string `json:"tables"` // table -> hash of its rows
	Rows   map[string]uint64 `json:"rows"`   // table -> rows
}

// RollbackRequest makes a shard restore the newest checkpoint under a new generation.
// Generation is the one to leave: a shard that has already left it does nothing, so that
// two trainers who ask for the same thing get one roll-back.
type RollbackRequest struct {
	Generation uint64 `json:"generation"`
	Reason     string `json:"reason"`
}

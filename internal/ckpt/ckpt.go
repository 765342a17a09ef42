// Package ckpt writes and reads one parameter-server shard, or one entry model, as a
// directory that is either wholly there or not at all.
//
// A shard directory holds, per table, a TFRecord file of the original's EntryDump in id
// order, one TFRecord file of dense variables, and manifest.json, which names the rest
// with a checksum each and carries a checksum of itself. An export is the same without
// optimizer slots.
package ckpt

import (
	"errors"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/table"
)

var (
	// ErrCorrupt: the directory is not what was written. The message names the file.
	ErrCorrupt = errors.New("checkpoint is corrupt")
	// ErrInvalid: what was asked to be written contradicts itself; nothing was written.
	ErrInvalid = errors.New("checkpoint is not valid")
)

// TableInfo describes one table of a shard. Name and Dim may be given; the rest is
// filled in when written.
type TableInfo struct {
	Name string `json:"name"`
	Dim  int    `json:"dim"`
	Rows uint64 `json:"rows"`
	File string `json:"file"`
	Hash string `json:"hash"` // table.Hasher's, so it equals table.Table.Hash of the live table
}

// Manifest is a shard directory's table of contents. WriteShard sets Tables, Variables,
// Shapes, Hash, Files and Sum; the rest is the caller's.
type Manifest struct {
	Format     int               `json:"format"` // 1
	Job        string            `json:"job"`
	Checkpoint int64             `json:"checkpoint"`
	Shard      uint32            `json:"shard"`
	Shards     uint32            `json:"shards"`
	Epoch      uint64            `json:"epoch"`
	Step       uint64            `json:"step"`
	Turn       uint64            `json:"turn"`
	Generation uint64            `json:"generation"`
	SyncSeq    uint64            `json:"sync_seq"`
	Offsets    map[int32]int64   `json:"offsets"` // Kafka partition -> next offset to learn
	Tables     []TableInfo       `json:"tables"`  // by name
	Variables  []string          `json:"variables"`
	Shapes     [][]uint32        `json:"shapes"` // of Variables
	Hash       string            `json:"hash"`   // SHA-256 of the parameters alone: equal state, equal hash
	Files      map[string]uint32 `json:"files"`  // name -> CRC-32C
	Sum        string            `json:"sum"`    // SHA-256 of this manifest with Sum empty
}

// Variable is a dense variable. Slots may be empty, as in an export.
type Variable struct {
	Shape  []uint32
	Values []float32
	Slots  []float32
}

// Shard is everything one parameter-server shard knows, in memory.
type Shard struct {
	Manifest Manifest
	Tables   map[string][]table.Row
	Dense    map[string]Variable
}

// Export is s without optimizer slots, as serving wants it. Values are shared with s.
func Export(s *Shard) *Shard {
	out := &Shard{Manifest: s.Manifest, Tables: make(map[string][]table.Row, len(s.Tables)), Dense: make(map[string]Variable, len(s.Dense))}
	for name, rows := range s.Tables {
		bare := make([]table.Row, len(rows))
		for i, r := range rows {
			r.Slots = nil
			bare[i] = r
		}
		out.Tables[name] = bare
	}
	for name, v := range s.Dense {
		v.Slots = nil
		out.Dense[name] = v
	}
	return out
}

// Entry is what the entry sub-model of a version needs besides the shards.
type Entry struct {
	Spec    *model.ModelSpec
	Version int64
	Job     string
	Shards  uint32
	SyncSeq uint64
	Dense   map[string]Variable
}

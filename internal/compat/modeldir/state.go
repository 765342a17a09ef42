// Package modeldir reads and writes checkpoints as Monolith in Python keeps them in a
// model_dir, so that a trained model moves between the two.
//
//	checkpoint                              which checkpoint is the newest, and which others there are
//	monolith_checkpoint                     of what kind its tables are
//	model.ckpt-<step>.index, .data-…        dense variables and global_step, as TensorFlow's savers have them
//	model.ckpt-<step>.assets/               embedding tables, as package entrydump has them
//	ckpt.info-<step>                        how many rows each slot has
package modeldir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/model/tensorbundle"
	"github.com/monolith-go/monolith/internal/vfs"
)

// StateFiles are the files that name a model_dir's checkpoints, in the order in which they are written.
var StateFiles = []string{tablesName, stateName}

// Files are the files and folders of one checkpoint, in the order in which they are written.
func Files(step uint64) []string {
	name := checkpoint.Name(step)
	return []string{name + assetsName, tensorbundle.DataName(name, 0, 1), tensorbundle.IndexName(name), checkpoint.InfoName(step)}
}

const (
	stateName  = "checkpoint"
	tablesName = "monolith_checkpoint"
	assetsName = ".assets"

	maxText = 16 << 20
	// maxCountedSlot is the greatest slot that ckpt.info counts by itself.
	maxCountedSlot = 102399
)

// readText reads a message in text format; false where there is no such file. Fields of
// newer writers are passed over.
func readText(ctx context.Context, path string, m proto.Message) (bool, error) {
	text, err := vfs.ReadText(ctx, path, maxText)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return false, fmt.Errorf("%s is not what TensorFlow or Monolith writes: %w", path, err)
	}
	return true, nil
}

// writeText replaces the file at path by m.
func writeText(path string, m proto.Message) error {
	text, err := prototext.MarshalOptions{Multiline: true}.Marshal(m)
	if err != nil {
		return err
	}
	err = durable.Replace(path, 0o644, func(f *os.File) error { _, err := f.Write(text); return err })
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteInfo writes the file of rows by slot beside a checkpoint.
func WriteInfo(path string, rows map[int32]int64) error {
	return writeText(path, &CkptInfo{SlotCounts: rows})
}

// point makes name the newest checkpoint of dir, and says of what kind its tables are.
func point(ctx context.Context, dir, name string, kind MonolithCheckpointState_HashTableType, now time.Time) error {
	var tables MonolithCheckpointState
	if _, err := readText(ctx, filepath.Join(dir, tablesName), &tables); err != nil {
		return err
	}
	tables.BuiltinHashTableType, tables.LastCheckpointSaveTimestamp = kind.Enum(), proto.Int64(now.Unix())
	if err := writeText(filepath.Join(dir, tablesName), &tables); err != nil {
		return err
	}
	var state modelinfo.CheckpointState
	if _, err := readText(ctx, filepath.Join(dir, stateName), &state); err != nil {
		return err
	}
	state.ModelCheckpointPath = proto.String(name)
	all := slices.DeleteFunc(state.AllModelCheckpointPaths, func(s string) bool { return s == name })
	state.AllModelCheckpointPaths = append(all, name)
	state.AllModelCheckpointTimestamps = nil // one for each path, or none
	return writeText(filepath.Join(dir, stateName), &state)
}

// found is a checkpoint of a model_dir.
type found struct {
	prefix string // its path, without endings
	step   int64  // by its name
	sparse bool   // there are tables alone
}

// find resolves a checkpoint as the original does: the one that is named, else the newest by
// the state file, else the only one whose tables lie there.
func find(ctx context.Context, dir, name string) (*found, error) {
	if _, err := vfs.Stat(dir); err != nil {
		return nil, fmt.Errorf("no model_dir: %w", err)
	}
	if name == "" {
		var state modelinfo.CheckpointState
		ok, err := readText(ctx, vfs.Join(dir, stateName), &state)
		if err != nil {
			return nil, err
		}
		if name = state.GetModelCheckpointPath(); ok && name == "" {
			return nil, fmt.Errorf("%s names no model_checkpoint_path: name a checkpoint with --ckpt", vfs.Join(dir, stateName))
		}
	} else if step, err := strconv.ParseUint(name, 10, 63); err == nil {
		name = checkpoint.Name(step)
	}
	if name == "" {
		lone, err := vfs.Glob(vfs.Join(escaped(dir), checkpoint.Pattern+assetsName))
		if err != nil {
			return nil, err
		}
		if len(lone) != 1 {
			return nil, fmt.Errorf("%s has no file %q, and %d folders of tables, of which one alone could be meant: name a checkpoint with --ckpt", dir, stateName, len(lone))
		}
		name = strings.TrimSuffix(vfs.Base(lone[0]), assetsName)
	}
	f := &found{prefix: name}
	if !vfs.IsAbs(name) {
		f.prefix = vfs.Join(dir, name)
	}
	if _, err := vfs.Stat(tensorbundle.IndexName(f.prefix)); errors.Is(err, fs.ErrNotExist) {
		f.sparse = true
	}
	if _, err := vfs.Stat(f.prefix + assetsName); errors.Is(err, fs.ErrNotExist) && f.sparse {
		return nil, fmt.Errorf("there is neither %s nor %s: name another checkpoint with --ckpt", tensorbundle.IndexName(f.prefix), f.prefix+assetsName)
	}
	f.step, _ = strconv.ParseInt(f.prefix[strings.LastIndexByte(f.prefix, '-')+1:], 10, 64)
	return f, nil
}

// escaped is a path that a pattern matches as it is written.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// countSlot counts a row of a slot.
func countSlot(counts map[int32]int64, slot uint32) {
	counts[int32(min(slot, maxCountedSlot))]++
}

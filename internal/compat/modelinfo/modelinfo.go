// Package modelinfo sizes an exported model: which sub-models an exported_models folder
// holds, which version of them belongs together, and how much each would load.
package modelinfo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// SubModel is one version of one sub-model.
type SubModel struct {
	Size int64  // bytes: the saved model and, for ps_{i}, its part of the checkpoint's assets
	Path string // absolute: <exported_models>/<sub-model>/<version>
}

// ErrNoVersion is returned while no version is there that all sub-models have.
var ErrNoVersion = errors.New("no version is common to all sub-models")

// StateFile is where an exporter records, in the folder of each sub-model, which version came from which step.
const StateFile = "ExportSaverListenerState"

// maxText bounds the two text files that are read.
const maxText = 16 << 20

// row is the name of one shard's part of a table: <table>_<ps index>-<part>-of-<parts>.
var row = regexp.MustCompile(`^.+_(\d+)-\d+-of-\d+$`)

// Calculate sizes the version of exportedModels that was exported at ckpt (a name such as
// model.ckpt-1234; "" for the one that the checkpoint file beside exportedModels names, if
// there is one). Without a record of that checkpoint's export it is the greatest version
// that every sub-model has. It returns the sub-models by name, and the checkpoint ("" if
// none is known) and version they belong to.
func Calculate(exportedModels, ckpt string) (map[string]SubModel, string, int64, error) {
	return CalculateVersion(exportedModels, ckpt, 0)
}

// CalculateVersion is Calculate for a given version; 0 has it chosen.
func CalculateVersion(exportedModels, ckpt string, version int64) (map[string]SubModel, string, int64, error) {
	fail := func(err error) (map[string]SubModel, string, int64, error) { return nil, "", 0, err }
	dir, err := filepath.Abs(exportedModels)
	if err != nil {
		return fail(err)
	}
	subs, err := subModels(dir)
	if err != nil {
		return fail(err)
	}
	base := filepath.Dir(dir)
	if ckpt == "" {
		if ckpt, err = newest(base); err != nil {
			return fail(err)
		}
	}
	if ckpt != filepath.Base(ckpt) && ckpt != "" {
		return fail(fmt.Errorf("ckpt %q is a path: give the name alone, such as model.ckpt-1234", ckpt))
	}
	step, err := globalStep(ckpt)
	if err != nil {
		return fail(err)
	}
	if version == 0 {
		if version, err = choose(dir, subs, step); err != nil {
			return fail(err)
		}
	}
	out := make(map[string]SubModel, len(subs))
	for _, sub := range subs {
		if !needed.MatchString(sub) && !isDir(filepath.Join(dir, sub, strconv.FormatInt(version, 10))) {
			continue // it is no part of this version
		}
		path := filepath.Join(dir, sub, strconv.FormatInt(version, 10))
		size, err := treeSize(path)
		if err != nil {
			return fail(fmt.Errorf("size of %s: %w", path, err))
		}
		out[sub] = SubModel{Size: size, Path: path}
	}
	if ckpt != "" {
		if err := addAssets(filepath.Join(base, ckpt+".assets"), out); err != nil {
			return fail(err)
		}
	}
	return out, ckpt, version, nil
}

// needed are the sub-models without which nothing is served.
var needed = regexp.MustCompile(`^(entry|ps_\d+)$`)

// subModels are the folders below dir that are not hidden, sorted. Stray files are none,
// and neither are other folders without a version, which somebody has put beside an
// export.
func subModels(dir string) ([]string, error) {
	children, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("exported models: %w", err)
	}
	var subs []string
	for _, c := range children {
		if strings.HasPrefix(c.Name(), ".") || !isDir(filepath.Join(dir, c.Name())) {
			continue
		}
		if !needed.MatchString(c.Name()) {
			if some, err := versions(filepath.Join(dir, c.Name())); err != nil || len(some) == 0 {
				continue
			}
		}
		subs = append(subs, c.Name())
	}
	if len(subs) == 0 {
		return nil, fmt.Errorf("exported models: %s holds no sub-model: give the folder that holds entry/, ps_0/ and so on", dir)
	}
	return subs, nil
}

// newest is the name of the checkpoint that the state file in base points at, "" where
// there is no such file.
func newest(base string) (string, error) {
	var s CheckpointState
	found, err := readText(filepath.Join(base, "checkpoint"), &s)
	if err != nil || !found || s.GetModelCheckpointPath() == "" {
		return "", err
	}
	return filepath.Base(s.GetModelCheckpointPath()), nil
}

// globalStep is the number behind the last dash of a checkpoint's name; -1 for none.
func globalStep(ckpt string) (int64, error) {
	if ckpt == "" {
		return -1, nil
	}
	step, err := strconv.ParseInt(ckpt[strings.LastIndexByte(ckpt, '-')+1:], 10, 64)
	if err != nil || step < 0 {
		return 0, fmt.Errorf("ckpt %q does not end in its global step: give a name such as model.ckpt-1234", ckpt)
	}
	return step, nil
}

// choose picks the greatest version that all sub-models have: of those recorded for step
// where an exporter kept a record of it, else of all.
func choose(dir string, subs []string, step int64) (int64, error) {
	var common, recorded []int64
	matches := step >= 0
	for i, sub := range subs {
		have, err := versions(filepath.Join(dir, sub))
		if err != nil {
			return 0, err
		}
		at, err := recordedAt(filepath.Join(dir, sub), step)
		if err != nil {
			return 0, err
		}
		if at == nil {
			at = have // this sub-model keeps no record: any of its versions may be the one
		}
		if i == 0 {
			common, recorded = have, at
		}
		common = intersect(common, have)
		recorded = intersect(intersect(recorded, at), have)
	}
	if len(common) == 0 {
		return 0, fmt.Errorf("%w in %s: wait for an export to finish, or export again", ErrNoVersion, dir)
	}
	if matches && len(recorded) > 0 {
		return slices.Max(recorded), nil
	}
	return slices.Max(common), nil
}

// Versions are those that every sub-model has which a model needs, ascending.
func Versions(exportedModels string) (common []int64, err error) {
	subs, err := subModels(exportedModels)
	if err != nil {
		return nil, err
	}
	first := true
	for _, sub := range subs {
		if !needed.MatchString(sub) {
			continue
		}
		have, err := versions(filepath.Join(exportedModels, sub))
		if err != nil {
			return nil, err
		}
		if first {
			common, first = have, false
		}
		common = intersect(common, have)
	}
	slices.Sort(common)
	return common, nil
}

// versions are the folders named by a number.
func versions(dir string) ([]int64, error) {
	children, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := []int64{}
	for _, c := range children {
		v, err := strconv.ParseInt(c.Name(), 10, 64)
		if err == nil && v > 0 && strconv.FormatInt(v, 10) == c.Name() && isDir(filepath.Join(dir, c.Name())) {
			out = append(out, v)
		}
	}
	return out, nil
}

// recordedAt are the versions that the sub-model's exporter recorded for step; nil where
// it recorded nothing for it.
func recordedAt(dir string, step int64) ([]int64, error) {
	var s ServingModelState
	found, err := readText(filepath.Join(dir, StateFile), &s)
	if err != nil || !found {
		return nil, err
	}
	var out []int64
	for _, e := range s.GetEntries() {
		if e.GlobalStep == nil || e.GetGlobalStep() != step {
			continue
		}
		if v, err := strconv.ParseInt(filepath.Base(e.GetExportDir()), 10, 64); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}

func intersect(a, b []int64) []int64 {
	var out []int64
	for _, v := range a {
		if slices.Contains(b, v) {
			out = append(out, v)
		}
	}
	return out
}

// treeSize sums the files below dir; links to files count as what they point at.
func treeSize(dir string) (int64, error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return err
		case info.Mode().IsRegular():
			sum += info.Size()
		}
		return nil
	})
	return sum, err
}

// addAssets credits each ps_{i} with its part of a checkpoint's tables. A part of a shard
// that was not exported is nobody's to load.
func addAssets(dir string, out map[string]SubModel) error {
	children, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint assets: %w", err)
	}
	for _, c := range children {
		m := row.FindStringSubmatch(c.Name())
		if m == nil {
			continue
		}
		shard, err := strconv.Atoi(m[1]) // the file may pad what the folder does not
		if err != nil {
			continue
		}
		name := "ps_" + strconv.Itoa(shard)
		sub, ok := out[name]
		if !ok {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, c.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the checkpoint is being cleaned up
		}
		if err != nil {
			return fmt.Errorf("checkpoint assets: %w", err)
		}
		sub.Size += info.Size()
		out[name] = sub
	}
	return nil
}

// readText reads a message in text format; false where there is no such file. Fields of
// newer writers are passed over.
func readText(path string, m proto.Message) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.Size() > maxText {
		return false, fmt.Errorf("%s is %d bytes long, at most %d are read", path, info.Size(), maxText)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return false, fmt.Errorf("%s is not what an exporter writes: %w", path, err)
	}
	return true, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Record is the text of the state file that holds old, which may be empty, when the version in dir, exported at step, is added.
func Record(old []byte, dir string, step int64) ([]byte, error) {
	var s ServingModelState
	if err := prototext.Unmarshal(old, &s); err != nil {
		return nil, fmt.Errorf("%s is not what an exporter writes: %w", StateFile, err)
	}
	s.Entries = slices.DeleteFunc(s.Entries, func(e *ServingEntry) bool { return e.GetExportDir() == dir })
	s.Entries = append(s.Entries, &ServingEntry{ExportDir: proto.String(dir), GlobalStep: proto.Int64(step)})
	return prototext.MarshalOptions{Multiline: true}.Marshal(&s)
}

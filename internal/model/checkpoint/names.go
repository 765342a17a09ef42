package checkpoint

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const (
	prefix     = "model.ckpt-"
	infoPrefix = "ckpt.info-"
)

// Pattern matches the names of checkpoints, and what begins like them.
const Pattern = prefix + "*"

// Name is a checkpoint's, below its job's folder: ours is a folder, Monolith's the beginning of several files' names.
func Name[N int64 | uint64](id N) string { return prefix + fmt.Sprint(id) }

// InfoName is the file beside it that says how many rows each slot has.
func InfoName[N int64 | uint64](id N) string { return infoPrefix + fmt.Sprint(id) }

// Part is where a shard's part of a checkpoint of ours lies, below the job's folder.
func Part(id int64, shard int) string { return path.Join(Name(id), shardName(shard)) }

func shardName(shard int) string { return "ps_" + strconv.Itoa(shard) }

// ID is the number of the checkpoint that is called so, as Name writes it.
func ID(name string) (id int64, ok bool) { return numberOf(name, prefix) }

// InfoID is the number of the checkpoint beside which a file is called so.
func InfoID(name string) (id int64, ok bool) { return numberOf(name, infoPrefix) }

// Parse is the number of a checkpoint that a person names, by it or by its whole name.
func Parse(text string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(text, prefix), 10, 64)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("%.80q is no checkpoint: give its number, or its name as in %s", text, Name[int64](12))
	}
	return id, nil
}

// IsPart says whether Part writes a path so.
func IsPart(text string) bool {
	dir, name := path.Split(text)
	id, ok := ID(strings.TrimSuffix(dir, "/"))
	shard, err := strconv.ParseUint(strings.TrimPrefix(name, "ps_"), 10, 16)
	return ok && err == nil && text == Part(id, int(shard))
}

// numberOf is the number behind a prefix in a name that is written as the product does.
func numberOf(name, prefix string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n > 0 && strconv.FormatInt(n, 10) == digits
}

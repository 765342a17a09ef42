package tree

import (
	"strconv"
	"strings"
)

// Quotas are as ZooKeeper's: the node zookeeper_limits below /zookeeper/quota/<path> says
// that path has one, and zookeeper_stats beside it counts the nodes and bytes from path
// on. The deepest quota over a node is the one that counts it. Limits are not enforced,
// as they are not by default there.
const (
	quotaPath  = "/zookeeper/quota"
	limitsNode = "zookeeper_limits"
	statsNode  = "zookeeper_stats"
)

// account adds to the statistics of the quota that path is under, if it is under one.
func (t *Tree) account(path string, count, bytes int64) {
	if t.quota == 0 {
		t.quota = t.Find(quotaPath) // nobody can remove it
	}
	if t.dirOf(t.quota).kids == 0 || count == 0 && bytes == 0 {
		return
	}
	at, limited, end, over := t.quota, uint32(0), 0, ""
	for step := range strings.SplitSeq(path[1:], "/") {
		if at = t.child(at, step); at == 0 {
			break
		}
		end += 1 + len(step)
		if t.child(at, limitsNode) != 0 {
			limited, over = at, path[:end]
		}
	}
	if limited == 0 {
		return
	}
	stats := t.child(limited, statsNode)
	if stats == 0 {
		return
	}
	haveCount, haveBytes, ok := parseStats(string(t.Data(stats)))
	if !ok { // somebody wrote something else there
		t.measure(stats, over)
		return
	}
	t.replace(stats, formatStats(haveCount+count, haveBytes+bytes))
}

// quotaCreated counts what is there already when the statistics of a quota are created.
func (t *Tree) quotaCreated(id uint32, path string) {
	over, ok := strings.CutPrefix(path, quotaPath)
	if !ok {
		return
	}
	if over, ok = strings.CutSuffix(over, "/"+statsNode); ok && over != "" {
		t.measure(id, over)
	}
}

// measure writes the statistics of the tree from path on.
func (t *Tree) measure(stats uint32, path string) {
	var count, bytes int64
	if top := t.Find(path); top != 0 {
		count, bytes = 1, int64(t.nodes.at(top).dataLen)
		t.below(top, func(id uint32) {
			count++
			bytes += int64(t.nodes.at(id).dataLen)
		})
	}
	t.replace(stats, formatStats(count, bytes))
}

// replace sets data that change by themselves: no watch fires, and the node's version and
// times stay.
func (t *Tree) replace(id uint32, data []byte) {
	t.journal = append(t.journal, undo{kind: OpSetData, id: id, node: *t.nodes.at(id)})
	t.overwrite(id, data)
}

func formatStats(count, bytes int64) []byte {
	b := strconv.AppendInt([]byte("count="), count, 10)
	return strconv.AppendInt(append(b, ",bytes="...), bytes, 10)
}

func parseStats(s string) (count, bytes int64, ok bool) {
	c, b, ok := strings.Cut(s, ",")
	if !ok {
		return 0, 0, false
	}
	count, err1 := strconv.ParseInt(strings.TrimPrefix(c, "count="), 10, 64)
	bytes, err2 := strconv.ParseInt(strings.TrimPrefix(b, "bytes="), 10, 64)
	return count, bytes, err1 == nil && err2 == nil
}

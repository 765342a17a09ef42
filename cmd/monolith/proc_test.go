package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procID names a process so that its successor under the same pid is another one.
type procID struct {
	pid   int
	began string // in clock ticks since the machine's start
}

// procStat reads the parent and the identity of a process; a zombie is as good as gone.
func procStat(pid int) (id procID, parent int, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return procID{}, 0, false
	}
	// The name stands in parentheses and may hold anything.
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return procID{}, 0, false
	}
	parent, err = strconv.Atoi(f[1])
	return procID{pid, f[19]}, parent, err == nil
}

func (p procID) alive() bool {
	id, _, ok := procStat(p.pid)
	return ok && id == p
}

// childOf tells whether pid is a living process that parent started.
func childOf(pid, parent int) bool {
	_, p, ok := procStat(pid)
	return ok && p == parent
}

// descendants are the living children of root, and theirs.
func descendants(root int) []procID {
	entries, _ := os.ReadDir("/proc")
	children := map[int][]procID{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if id, parent, ok := procStat(pid); ok {
				children[parent] = append(children[parent], id)
			}
		}
	}
	var all []procID
	for queue := children[root]; len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		queue = append(queue, children[queue[0].pid]...)
	}
	return all
}

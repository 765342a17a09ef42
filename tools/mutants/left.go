package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// endLeft ends what a run left in process groups of their own, as servers that a killed test
// started: the environment of all that it started names its folder for temporary files. Without
// a /proc nothing is found.
func endLeft(folder string) {
	for end := time.Now().Add(5 * time.Second); killAll("TMPDIR="+folder) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// killAll kills the processes with that entry in their environment, and is false when there are none.
func killAll(entry string) (found bool) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well formed
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		process, err := os.FindProcess(pid) // before its environment is read: the number may become another's
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(path)
		if err == nil && slices.ContainsFunc(bytes.Split(environ, []byte{0}), func(e []byte) bool { return string(e) == entry }) {
			found = true
			_ = process.Kill() // it may have ended meanwhile
		}
		_ = process.Release()
	}
	return found
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// dataDir is a locked data folder: two processes never open the same logs. The lock is
// the kernel's, so it ends with the process however that ends.
type dataDir struct {
	path string
	lock *os.File
}

// running says where the process that holds the folder can be reached.
type running struct {
	PID   int    `json:"pid"`
	BZID  string `json:"bzid"`
	NATS  string `json:"nats"`
	Kafka string `json:"kafka"`
	// Predictions is the topic of impressions; empty: the namespace's own.
	Predictions string `json:"predictions,omitempty"`
	Status      string `json:"status"`
}

// errInUse means that another process holds the folder.
var errInUse = errors.New("in use")

func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder (--dir names another): %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			who := "another process"
			if r, err := readRunning(path); err == nil {
				who = fmt.Sprintf("process %d", r.PID)
			}
			return nil, fmt.Errorf("%s is %w by %s: stop it, or name another folder with --dir", path, errInUse, who)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &dataDir{path: path, lock: f}, nil
}

func (d *dataDir) announce(r running) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(d.path, "running.json"), raw)
}

func (d *dataDir) close() error { return d.lock.Close() }

func readRunning(path string) (running, error) {
	var r running
	raw, err := os.ReadFile(filepath.Join(path, "running.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

// replaceFile makes path appear whole or not at all, to its owner alone: a NATS URL may hold
// a password. What it says does not outlive the
// process, so it is not synced.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

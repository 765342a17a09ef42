package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/monolith-go/monolith/internal/durable"
)

// DataDir is a locked data folder: two processes never open the same logs. The lock is
// the kernel's, so it ends with the process however that ends.
type DataDir struct {
	Path string
	lock *flock.Flock
}

// Running says where the process that holds the folder can be reached.
type Running struct {
	PID   int    `json:"pid"`
	BZID  string `json:"bzid"`
	NATS  string `json:"nats"`
	Kafka string `json:"kafka"`
	// Predictions is the topic of impressions; empty: the namespace's own.
	Predictions string `json:"predictions,omitempty"`
	Status      string `json:"status"`
}

// ErrInUse means that another process holds the folder.
var ErrInUse = errors.New("in use")

// OpenDataDir makes the folder if need be and locks it, or returns [ErrInUse].
func OpenDataDir(path string) (*DataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := durable.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder (--dir names another): %w", err)
	}
	l := flock.New(filepath.Join(path, "lock"), flock.SetPermissions(0o644))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if !got {
		who := "another process"
		if r, err := ReadRunning(path); err == nil {
			who = fmt.Sprintf("process %d", r.PID)
		}
		return nil, fmt.Errorf("%s is %w by %s: stop it, or name another folder with --dir", path, ErrInUse, who)
	}
	return &DataDir{Path: path, lock: l}, nil
}

func (d *DataDir) announce(r Running) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return ReplaceFile(filepath.Join(d.Path, "running.json"), raw)
}

// Close gives the folder back.
func (d *DataDir) Close() error { return d.lock.Close() }

// ReadRunning reads what the process that holds the folder at path has announced.
func ReadRunning(path string) (Running, error) {
	var r Running
	raw, err := os.ReadFile(filepath.Join(path, "running.json"))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

// ReplaceFile makes path appear whole or not at all, to its owner alone: a NATS URL may hold
// a password. It is not synced: a start after a power cut writes it anew.
func ReplaceFile(path string, data []byte) error { return durable.Swap(path, 0o600, data) }

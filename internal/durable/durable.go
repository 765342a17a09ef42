// Package durable makes changes of a folder last.
package durable

import (
	"errors"
	"fmt"
	"os"
)

// SyncDir puts on disk which names a folder holds: what was created, renamed or removed
// in it before. Without it a crash may undo a rename whose file was synced.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

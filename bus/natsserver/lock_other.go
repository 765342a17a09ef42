//go:build !unix

package natsserver

import "os"

// lockFile opens path: without flock, one server per folder is the user's to keep.
func lockFile(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }

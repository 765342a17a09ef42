package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often a lock that is held is tried again.
const lockRetry = 20 * time.Millisecond

// Lock waits until nobody else, in this process or another, holds the file at path, or ctx ends. unlock takes the
// file away. One that a killed process left is held by nobody.
func Lock(ctx context.Context, path string) (unlock func() error, err error) {
	l, err := locked(ctx, path, (*flock.Flock).TryLockContext)
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(removeHeld(l), l.Close()) }, nil
}

// RLock is Lock beside others who call it; the last of them takes the file away.
func RLock(ctx context.Context, path string) (unlock func() error, err error) {
	l, err := locked(ctx, path, (*flock.Flock).TryRLockContext)
	if err != nil {
		return nil, err
	}
	return func() error { return errors.Join(l.Close(), Unlock(path)) }, nil
}

// Unlock takes the file at path away unless somebody holds it: that of a killed process.
func Unlock(path string) error {
	l := flock.New(path, flock.SetFlag(os.O_RDONLY)) // where it is gone none is made
	alone, err := l.TryLock()
	if err == nil && alone {
		err = removeHeld(l)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Close())
}

// removeHeld takes away the file that l holds alone, and no other that lies at its path by now.
func removeHeld(l *flock.Flock) error {
	if there, err := inPlace(l); err != nil || !there {
		return err
	}
	return os.Remove(l.Path())
}

// locked holds the file that lies at path: whoever held it before may have taken it away after it was opened here.
func locked(ctx context.Context, path string, try func(*flock.Flock, context.Context, time.Duration) (bool, error)) (*flock.Flock, error) {
	for {
		l := flock.New(path)
		if _, err := try(l, ctx, lockRetry); err != nil {
			return nil, err
		}
		there, err := inPlace(l)
		if err == nil && there {
			return l, nil
		}
		if err := errors.Join(err, l.Close()); err != nil {
			return nil, err
		}
	}
}

// inPlace tells whether the file that l holds is the one that lies at its path. It may have been removed, and made
// anew by another, between its opening and its locking.
func inPlace(l *flock.Flock) (bool, error) {
	held, err := l.Stat()
	if err != nil {
		return false, err
	}
	at, err := os.Stat(l.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, at), err
}

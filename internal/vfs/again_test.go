package vfs

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
)

// An error is tried again until it is an answer, or the tries or the caller's patience are at an end.
func TestTries(t *testing.T) {
	away := errors.New("the namenode is away")
	for _, tc := range []struct {
		name   string
		errs   []error
		cancel int // in which try the caller gives up; 0: never
		tries  int
		want   error
	}{
		{"it comes back", []error{away, away, nil}, 0, 3, nil},
		{"it stays away", []error{away, away, away, away, away, nil}, 0, 5, away},
		{"it refuses", []error{away, fs.ErrPermission, nil}, 0, 2, fs.ErrPermission},
		{"nothing is there", []error{fs.ErrNotExist, nil}, 0, 1, fs.ErrNotExist},
		{"a source that must come", []error{errors.Join(errNoSource, fs.ErrNotExist), nil}, 0, 2, nil},
		{"the caller is gone", []error{away, away, nil}, 2, 2, away},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n := 0
				err := again(ctx, Tries, func() error {
					n++
					if n == tc.cancel {
						cancel()
					}
					return tc.errs[n-1]
				})
				if n != tc.tries || !errors.Is(err, tc.want) {
					t.Errorf("%d tries, %v; want %d, %v", n, err, tc.tries, tc.want)
				}
			})
		})
	}
}

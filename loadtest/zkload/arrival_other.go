//go:build !linux

package zkload

import (
	"errors"
	"net"
	"time"
)

// arrivals needs Linux.
type arrivals struct{}

func newArrivals([]net.Conn) (*arrivals, error) {
	return nil, errors.New("waiting at many connections at once is done on Linux only")
}

func (*arrivals) forget() error                     { return nil }
func (*arrivals) wait(time.Time) (time.Time, error) { return time.Time{}, nil }
func (*arrivals) close() error                      { return nil }

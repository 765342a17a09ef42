//go:build !linux

package natsserver

import "context"

// syncNames does nothing: the promise of names is one of Linux.
func syncNames(context.Context, Config) {}

//go:build !linux

package durable

import "context"

// KeepNames does nothing: the promise of names is one of Linux.
func KeepNames(context.Context, string, func(error)) {}

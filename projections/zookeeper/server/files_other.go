//go:build !unix

package server

// files is how many files the process has open, and may have; -1: it cannot be told.
func files() (open, limit int64) { return -1, -1 }

//go:build !linux

package incarnation

// Self is unknown here: a lease of a process that was killed runs out by itself.
func Self() string { return "" }

// Over is never certain here.
func Over(string) bool { return false }

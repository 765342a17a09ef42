//go:build !linux

package checkpoint

func renameNew(from, to string) error { return renameOver(from, to) }

func exchange(a, b string) error { return swap(a, b) }

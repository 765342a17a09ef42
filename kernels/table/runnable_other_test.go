//go:build !amd64 || purego

package table

func runnable() []backend { return []backend{plain} }

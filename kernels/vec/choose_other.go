//go:build !amd64 || purego

package vec

func fastest() backend { return plain }

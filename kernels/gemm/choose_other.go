//go:build !amd64 || purego

package gemm

func fastest() ([2]*backend, error) { return [2]*backend{plain, plainRound}, nil }

func spins() [2]spin { return [2]spin{{spinGo, 16}, {spinGo, 16}} }

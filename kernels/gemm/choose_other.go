//go:build !amd64 || purego

package gemm

func fastest() [2]*backend { return [2]*backend{plain, plainRound} }

func spins() [2]spin { return [2]spin{{spinGo, 16}, {spinGo, 16}} }

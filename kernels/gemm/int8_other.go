//go:build !amd64 || purego

package gemm

func fastest8() *backend8 { return plain8 }

func spin8() spin { return spin{spinGo, 16} }

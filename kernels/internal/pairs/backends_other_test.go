//go:build !amd64 || purego

package pairs

func backends() []backend { return []backend{fastest()} }

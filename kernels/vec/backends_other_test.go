//go:build !amd64 || purego

package vec

func backends() []backend { return []backend{plain} }

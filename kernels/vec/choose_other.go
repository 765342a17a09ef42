//go:build !amd64 || purego

package vec

func fastest() backend { return plain }

func backends() []backend { return []backend{plain} }

//go:build !amd64 || purego

package pairs

func fastest() backend { return backend{name: "plain"} }

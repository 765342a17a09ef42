//go:build !amd64 || purego

package dense

func fastestFM() fmBackend { return fmBackend{name: "plain"} }

func fmBackends() []fmBackend { return []fmBackend{fastestFM()} }

//go:build tools

// Package tools pins the programs that the build runs.
package tools

import (
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
	_ "honnef.co/go/tools/cmd/staticcheck"
)

//go:build tools

// Package tools pins the programs that the build runs.
package tools

import (
	_ "go-simpler.org/sloglint/cmd/sloglint"
	_ "golang.org/x/tools/cmd/deadcode"
	_ "google.golang.org/grpc/cmd/protoc-gen-go-grpc"
	_ "google.golang.org/protobuf/cmd/protoc-gen-go"
	_ "gotest.tools/gotestsum"
	_ "honnef.co/go/tools/cmd/staticcheck"
)

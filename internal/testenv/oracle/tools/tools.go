//go:build tools

// Package tools pins the real counterparts that are built from source.
package tools

import (
	_ "github.com/nats-io/nats-server/v2"
	_ "github.com/nats-io/natscli/nats"
)

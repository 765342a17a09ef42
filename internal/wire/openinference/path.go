// Package openinference is the open inference protocol, version 2 (KServe, Triton), over HTTP and gRPC: paths,
// requests and answers, tensors as JSON, typed fields or bytes. Tensors inside are TensorFlow
// Serving's, so that one model answers both protocols.
package openinference

import (
	"net/url"
	"strconv"
	"strings"
)

// Path is what a request line of the protocol asks for.
type Path struct {
	Model   string // "": the server itself
	Version int64  // 0: none is named
	// Verb is "live" or "ready" of the server's health, "ready" or "infer" of a model, "" for metadata.
	Verb string
}

// ParsePath takes an escaped path below /v2 apart; ok is false for any other.
func ParsePath(path string) (p Path, ok bool) {
	steps := strings.Split(strings.TrimSuffix(path, "/"), "/")
	if len(steps) < 2 || steps[0] != "" || steps[1] != "v2" {
		return p, false
	}
	switch steps = steps[2:]; {
	case len(steps) == 0:
		return p, true
	case len(steps) == 2 && steps[0] == "health":
		p.Verb = steps[1]
		return p, p.Verb == "live" || p.Verb == "ready"
	case len(steps) < 2 || steps[0] != "models" || steps[1] == "":
		return p, false
	}
	name, err := url.PathUnescape(steps[1])
	if err != nil {
		return p, false
	}
	p.Model, steps = name, steps[2:]
	if len(steps) >= 2 && steps[0] == "versions" {
		v, err := strconv.ParseInt(steps[1], 10, 64)
		if err != nil || v < 1 {
			return p, false
		}
		p.Version, steps = v, steps[2:]
	}
	switch {
	case len(steps) == 0:
		return p, true
	case len(steps) == 1:
		p.Verb = steps[0]
	}
	return p, p.Verb == "ready" || p.Verb == "infer"
}

//go:build !linux

package tfssupervisor

import "os/exec"

// dieWithParent does nothing: only Linux can tie a child to its parent.
func dieWithParent(*exec.Cmd) {}

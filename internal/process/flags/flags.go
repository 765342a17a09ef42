// Package flags is what all command lines here have in common: what a wrong call is, and
// how flags take their defaults from the environment.
package flags

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// ErrUsage marks what a second look at --help mends.
var ErrUsage = errors.New("usage")

// NoArgs refuses arguments that are no flags.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments, got %q", ErrUsage, cmd.CommandPath(), args)
	}
	return nil
}

// Env is the environment's word, or fallback where it has none.
func Env(key, fallback string) string {
	if v := strings.TrimSpace(os.Getenv(key)); v != "" {
		return v
	}
	return fallback
}

// List reads a list with commas; empty entries do not count.
func List(s string) []string {
	var out []string
	for _, v := range strings.Split(s, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// Version is the module's, or the commit that the binary was built from, and the Go that
// built it.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, dirty := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " with changes"
		}
	}
	return fmt.Sprintf("%s%s (%s %s/%s)", v, dirty, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}

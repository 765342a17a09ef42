package modelserver

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A flag of zero is meant; a field that nobody has set takes its default.
func TestZeroByFlagIsMeant(t *testing.T) {
	for flag, want := range map[string]time.Duration{"": 5 * time.Second, "--linger=0": 0} {
		var c Config
		fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if got := c.withDefaults().Linger; got != want {
			t.Errorf("%q: %v, want %v", flag, got, want)
		}
	}
	if got := (Config{}).withDefaults().Linger; got != 5*time.Second {
		t.Errorf("in code: %v", got)
	}
}

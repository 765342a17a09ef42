package publisher

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A flag of zero is meant; a field that nobody has set takes its default.
func TestZeroByFlagIsMeant(t *testing.T) {
	for flag, want := range map[string]time.Duration{"": 300 * time.Millisecond, "--debounce=0": 0} {
		var c Config
		fs := pflag.NewFlagSet("publisher", pflag.ContinueOnError)
		c.Register(fs)
		if err := fs.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if got := c.withDefaults().Debounce; got != want {
			t.Errorf("%q: %v, want %v", flag, got, want)
		}
	}
	if got := (Config{}).withDefaults().Debounce; got != 300*time.Millisecond {
		t.Errorf("in code: %v", got)
	}
}

package jetstream

import "testing"

// micro takes letters, digits, '-' and '_'; what else a role's name holds becomes '-'.
func TestMicroName(t *testing.T) {
	for name, want := range map[string]string{
		"azAZ09_-":      "azAZ09_-",
		"ps.job.0":      "ps-job-0",
		"`{@[/:^ é\x00": "----------",
		"":              "",
	} {
		if got := microName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

package role_test

import (
	"testing"

	"github.com/monolith-go/monolith/services/internal/role"
)

// A loop logs the same only once in a row.
func TestLastLogged(t *testing.T) {
	var last role.LastLogged
	for i, tc := range []struct {
		reason  string
		changed bool
	}{{"a", true}, {"a", false}, {"b", true}, {"b", false}, {"a", true}} {
		if last.Changed(tc.reason) != tc.changed {
			t.Errorf("%d: %s is another reason: %v", i, tc.reason, !tc.changed)
		}
	}
}

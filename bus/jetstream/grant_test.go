package jetstream

import (
	"slices"
	"testing"
)

// Who serves commands is also asked who it is and how it does; nobody else hears such questions.
func TestWhoIsAskedWhatItServes(t *testing.T) {
	for _, tc := range []struct {
		grant Grant
		want  bool
	}{{Grant{Serves: []string{"portal"}}, true}, {Grant{Acts: true, Makes: true, Trims: true}, false}} {
		if _, subscribe := tc.grant.Subjects(); slices.Contains(subscribe, "$SRV.>") != tc.want {
			t.Errorf("%+v may subscribe to %q", tc.grant, subscribe)
		}
	}
}

package mem

import "testing"

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		filter, subject string
		want            bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.b.c", false},
		{"a.b.c", "a.b", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"*.b", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a", true},
	} {
		if got := match(tc.filter, tc.subject); got != tc.want {
			t.Errorf("match(%q, %q) = %v", tc.filter, tc.subject, got)
		}
	}
}

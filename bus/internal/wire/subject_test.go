package wire

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/events"
)

func TestCheckSubject(t *testing.T) {
	for _, tc := range []struct {
		subject         string
		literal, filter bool // it is taken as a subject, as a filter
	}{
		{"a", true, true},
		{"monolith.x.model.m", true, true},
		{"a.*", false, true},
		{"*.b.*", false, true},
		{"a.>", false, true},
		{">", false, true},
		{"a.>.b", false, false}, // > stands last
		{"a.b*", false, false},  // a wildcard is a token of its own
		{"a.>b", false, false},
		{"", false, false},
		{"a..b", false, false},
		{".a", false, false},
		{"a.", false, false},
		{"a.b c", false, false},
		{"a.b\n", false, false},
		{"a.\x00", false, false},
	} {
		for wildcards, want := range map[bool]bool{false: tc.literal, true: tc.filter} {
			err := CheckSubject(tc.subject, wildcards)
			if (err == nil) != want || err != nil && !errors.Is(err, events.ErrInvalid) {
				t.Errorf("CheckSubject(%q, wildcards %v) = %v", tc.subject, wildcards, err)
			}
		}
	}
}

// Commands of a namespace stand beside its facts, those of the pulse under the pulse's root,
// and a service hears its own in every namespace.
func TestCommandSubjects(t *testing.T) {
	for _, tc := range []struct{ command, subject, service, filter string }{
		{"portal.load", "monolith.b%2Ez.cmd.portal.load", "portal", "monolith.*.cmd.portal.>"},
		{"trainer.j.stop", "monolith.b%2Ez.cmd.trainer.j.stop", "trainer.>", "monolith.*.cmd.trainer.>"},
		{"pulse.replica.beat", "mpulse.b%2Ez.cmd.pulse.replica.beat", "pulse.replica", "mpulse.*.cmd.pulse.replica.>"},
	} {
		if got := Command("b.z", tc.command); got != tc.subject {
			t.Errorf("Command(%q) = %s, want %s", tc.command, got, tc.subject)
		}
		if got := CommandFilter(tc.service); got != tc.filter {
			t.Errorf("CommandFilter(%q) = %s, want %s", tc.service, got, tc.filter)
		}
	}
}

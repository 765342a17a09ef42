package wire

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// CheckSubject refuses what NATS would not take as a subject, or, with wildcards, as a
// filter.
func CheckSubject(subject string, wildcards bool) error {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		wild := t == "*" || (t == ">" && i == len(tokens)-1)
		if t == "" || strings.ContainsAny(t, " \t\r\n\x00") || (strings.ContainsAny(t, "*>") && !(wild && wildcards)) {
			return fmt.Errorf("%w: %q is not a subject; tokens are non-empty, without white space or wildcards, and joined by dots", events.ErrInvalid, subject)
		}
	}
	return nil
}

// InLog says whether the control plane's stream takes messages on the subject.
func InLog(subject string) bool {
	t := strings.SplitN(subject, ".", 4)
	return len(t) == 4 && t[0] == events.Root && slices.Contains(catalog.Contexts, t[2])
}

// LogSubjects are the subjects of the control plane's stream: context by context, so
// that it never swallows a command and answers it with a PubAck.
func LogSubjects() []string {
	s := make([]string, len(catalog.Contexts))
	for i, c := range catalog.Contexts {
		s[i] = events.Root + ".*." + c + ".>"
	}
	return s
}

package letters

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/internal/wire"
)

// Who is of a namespace sees its letters and summaries alone, and who is of none those of all.
func TestWhoseLetters(t *testing.T) {
	one, all := &Letters{bzid: "a.b"}, &Letters{}
	if got := one.filter(); strings.Contains(got, "*") || strings.Count(got, ".") != strings.Count(wire.LetterRoot, ".")+1 {
		t.Errorf("letters of one namespace: %s", got)
	}
	if got := one.summaries(); got != wire.SummaryRoot("a.b") || strings.Contains(got, "*") {
		t.Errorf("summaries of one namespace: %s", got)
	}
	if letters, summaries := all.filter(), all.summaries(); letters != wire.LetterRoot+".*" || summaries != wire.NoteRoot+".*.more" {
		t.Errorf("of all: %s, %s", letters, summaries)
	}
}

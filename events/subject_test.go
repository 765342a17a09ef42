package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events"
)

func TestJoinKeepsNamesApart(t *testing.T) {
	seen := map[events.Subject]string{}
	for _, name := range []string{"a.b", "a_b", "a%2Eb", "a b", "a*", "a>", "", "%", "$JS", "ä", "movies/ps:0/1", "\x00"} {
		s := events.Join("demo", "model", name)
		if other, dup := seen[s]; dup {
			t.Errorf("%q and %q share subject %s", name, other, s)
		}
		seen[s] = name
		if strings.ContainsAny(string(s), "*> \x00") || strings.Count(string(s), ".") != 3 {
			t.Errorf("%q gives %q, which is no literal four-token subject", name, s)
		}
		for _, subject := range []events.Subject{s, s.Request()} {
			p, err := subject.Parse()
			if err != nil || p.Aggregate != name || p.BZID != "demo" || p.Context != "model" || p.Request != (subject != s) {
				t.Errorf("Parse(%q) = %+v, %v", subject, p, err)
			}
		}
	}
	if got := events.Join("demo", "replica", "movies/ps:0/1"); got != "monolith.demo.replica.movies/ps:0/1" {
		t.Errorf("a readable name became %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []events.Subject{"", "monolith.a.b", "other.a.b.c", "monolith.a.b.c.d", "monolith.a.b.c.request.x", "monolith.a.b.%2", "monolith.a.b.%2e", "monolith.a.b.%41", "monolith..b.c"} {
		if p, err := s.Parse(); !errors.Is(err, events.ErrMalformed) {
			t.Errorf("Parse(%q) = %+v, %v; want ErrMalformed", s, p, err)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"", "a.b", "%", "%41", "\xff", "日本"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := events.Escape(s)
		if token == "" || strings.ContainsAny(token, ".*> \t\r\n") {
			t.Fatalf("Escape(%q) = %q is no token", s, token)
		}
		if back, err := events.Unescape(token); err != nil || back != s {
			t.Fatalf("Unescape(Escape(%q)) = %q, %v", s, back, err)
		}
		if back, err := events.Unescape(s); err == nil && events.Escape(back) != s {
			t.Fatalf("%q is a second spelling of %q", s, events.Escape(back))
		}
	})
}

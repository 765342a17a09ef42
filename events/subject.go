package events

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Root is the first token of every control-plane subject.
const Root = "monolith"

const requestEnd = ".request"

// Subject is monolith.<bzid>.<context>.<aggregate>, with .request behind it for
// requests from outside. Tokens are escaped reversibly.
type Subject string

// Join builds the one literal subject of an aggregate.
func Join(bzid, context, aggregate string) Subject {
	return Subject(Root + "." + Escape(bzid) + "." + Escape(context) + "." + Escape(aggregate))
}

// Request is where anyone may publish a ...Requested for the aggregate.
func (s Subject) Request() Subject { return s + requestEnd }

// IsRequest says whether anyone may publish on s, as [Subject.Request] has it.
func (s Subject) IsRequest() bool { return strings.HasSuffix(string(s), requestEnd) }

// Parts is a Subject taken apart, tokens unescaped.
type Parts struct {
	BZID, Context, Aggregate string
	Request                  bool
}

// Parse takes a subject apart; what Join did not build is ErrMalformed.
func (s Subject) Parse() (Parts, error) {
	rest, ours := strings.CutPrefix(string(s), Root+".")
	rest, request := strings.CutSuffix(rest, requestEnd)
	var t [3]string
	var more bool
	for i := range t {
		t[i], rest, more = strings.Cut(rest, ".")
		ours = ours && more == (i < len(t)-1)
	}
	if !ours {
		return Parts{}, fmt.Errorf("%w: subject %q is not monolith.<bzid>.<context>.<aggregate>[.request]", ErrMalformed, s)
	}
	var p [3]string
	for i, token := range t {
		v, err := Unescape(token)
		if err == nil && !utf8.ValidString(v) { // views keep it in JSON, where it would become another
			err = fmt.Errorf("%w: token %q is not UTF-8", ErrMalformed, token)
		}
		if err != nil {
			return Parts{}, fmt.Errorf("subject %q: %w", s, err)
		}
		p[i] = v
	}
	return Parts{BZID: p[0], Context: p[1], Aggregate: p[2], Request: request}, nil
}

// Escape makes any string one subject token: what NATS gives a meaning ('.', '*',
// '>', white space), '%', '$' and every byte outside printable ASCII becomes %XX, the
// empty string "%". So "a.b" and "a_b" never share a subject.
func Escape(token string) string {
	if token == "" {
		return "%"
	}
	var b strings.Builder
	for i := range len(token) {
		c := token[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(".*>%$", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// Unescape undoes Escape, and refuses every other spelling of the same token.
func Unescape(token string) (string, error) {
	if token == "%" {
		return "", nil
	}
	if plain(token) {
		return token, nil
	}
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c == '%' {
			if i+2 >= len(token) {
				return "", fmt.Errorf("%w: token %q ends inside an escape", ErrMalformed, token)
			}
			hi, lo := unhex(token[i+1]), unhex(token[i+2])
			if hi < 0 || lo < 0 {
				return "", fmt.Errorf("%w: token %q has a bad escape", ErrMalformed, token)
			}
			c = byte(hi<<4 | lo)
			i += 2
		}
		b.WriteByte(c)
	}
	if s := b.String(); Escape(s) == token {
		return s, nil
	}
	return "", fmt.Errorf("%w: token %q is not in canonical form %q", ErrMalformed, token, Escape(b.String()))
}

// plain says that Escape would leave the token as it is.
func plain(token string) bool {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f || c == '.' || c == '*' || c == '>' || c == '%' || c == '$' {
			return false
		}
	}
	return token != ""
}

func unhex(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }

package events

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Asked says who asked for what led to an event, and from where. The zero value: nobody did, or
// nobody said.
type Asked struct {
	By    string // asked-by: the key's holder, or, without a key, the operating system's user as the asker told it
	Key   string // asked-key: the public NKey by which By is known for certain; "": it is not
	From  string // asked-from: the asker's host, as it told it
	Proof string // asked-proof: time, nonce and signature of a request; facts have none, their owner has checked it
}

// Bounds of what an asker may tell of itself.
const (
	maxAsker = 128 // bytes of By and of Key
	maxFrom  = 255 // of From, as a host's name
	maxProof = 256
)

// Bounded is a without what is too long or cannot be printed.
func (a Asked) Bounded() Asked {
	return Asked{printable(a.By, maxAsker), printable(a.Key, maxAsker), printable(a.From, maxFrom), printable(a.Proof, maxProof)}
}

// Fact is a as the fact holds it that answers.
func (a Asked) Fact() Asked {
	a.Proof = ""
	return a
}

// String is for people: "operator (UABC…) from host", or "ann from host, not authenticated".
func (a Asked) String() string {
	if a == (Asked{}) {
		return ""
	}
	var b strings.Builder
	if b.WriteString(a.By); a.By == "" {
		b.WriteString("somebody")
	}
	if a.Key != "" {
		fmt.Fprintf(&b, " (%s)", a.Key)
	}
	if a.From != "" {
		b.WriteString(" from " + a.From)
	}
	if a.Key == "" {
		b.WriteString(", not authenticated")
	}
	return b.String()
}

// printable is at most n bytes of s, without control characters.
func printable(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

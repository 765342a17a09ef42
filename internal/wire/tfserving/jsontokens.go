package tfserving

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// token is one piece of a JSON text; commas and colons are none.
type token struct {
	kind byte   // one of { } [ ] " t f n, or 0 for a number
	text []byte // what a string says, or a number as it is written; good until the next token is read
}

// place is where in an object or array a tokens stands.
type place byte

const (
	atTop place = iota
	arrayStart
	arrayValue // behind a comma
	arrayComma // behind an element
	objectStart
	objectKey // behind a comma
	objectColon
	objectValue
	objectComma
)

// looking completes the sentence about a byte that may not stand at a place.
var looking = [...]string{
	atTop: "looking for beginning of value", arrayStart: "looking for beginning of value", arrayValue: "looking for beginning of value",
	arrayComma: "after array element", objectStart: "looking for beginning of object key string", objectKey: "looking for beginning of object key string",
	objectColon: "after object key", objectValue: "looking for beginning of value", objectComma: "after object key:value pair",
}

// tokens reads JSON as it arrives and takes and refuses what [json.Decoder.Token] does. It holds
// one buffer, which grows only for a token that does not fit into it; white space is dropped.
type tokens struct {
	r       io.Reader
	buf     []byte
	at, end int   // buf[at:end] is to be read
	base    int64 // where buf begins in the text
	failed  error // that reading came to
	where   place
	open    []place // what where is within: arrayComma or objectComma, or atTop
}

const tokensBuffer = 16 << 10

func newTokens(r io.Reader) *tokens { return &tokens{r: r, buf: make([]byte, tokensBuffer)} }

// offset is how much of the text is behind.
func (t *tokens) offset() int64 { return t.base + int64(t.at) }

// fetch reads more behind what is in the buffer.
func (t *tokens) fetch() error {
	if t.failed != nil {
		return t.failed
	}
	if t.at > 0 {
		t.base += int64(t.at)
		t.end = copy(t.buf, t.buf[t.at:t.end])
		t.at = 0
	}
	if t.end == len(t.buf) {
		t.buf = append(t.buf, make([]byte, len(t.buf))...)
	}
	for range 100 {
		n, err := t.r.Read(t.buf[t.end:])
		t.end, t.failed = t.end+n, err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	t.failed = io.ErrNoProgress
	return t.failed
}

// within is fetch inside a token: the text may not end there.
func (t *tokens) within() error {
	err := t.fetch()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// peek returns the byte behind the white space.
func (t *tokens) peek() (byte, error) {
	for {
		for t.at < t.end {
			switch c := t.buf[t.at]; c {
			case ' ', '\n', '\t', '\r':
				t.at++
			default:
				return c, nil
			}
		}
		if err := t.fetch(); err != nil {
			return 0, err
		}
	}
}

// more says whether the object or array has another element.
func (t *tokens) more() bool {
	c, err := t.peek()
	return err == nil && c != ']' && c != '}'
}

// next reads a token. At the end of the text, where none is due, the error is io.EOF.
func (t *tokens) next() (token, error) {
	for {
		c, err := t.peek()
		if err != nil {
			return token{}, err
		}
		switch c {
		case ',':
			switch t.where {
			case arrayComma:
				t.where = arrayValue
			case objectComma:
				t.where = objectKey
			default:
				return token{}, t.strange(c)
			}
			t.at++
		case ':':
			if t.where != objectColon {
				return token{}, t.strange(c)
			}
			t.where = objectValue
			t.at++
		case '{', '[':
			return t.opened(c)
		case '}', ']':
			return t.closed(c)
		default:
			return t.scalar(c)
		}
	}
}

func (t *tokens) strange(c byte) error {
	return fmt.Errorf("invalid character %s %s", quoted(c), looking[t.where])
}

func quoted(c byte) string { return strconv.QuoteRune(rune(c)) }

// valueDue says whether a value may stand here.
func (t *tokens) valueDue() bool {
	switch t.where {
	case atTop, arrayStart, arrayValue, objectValue:
		return true
	}
	return false
}

// behind is the place behind a value that may stand here.
func (t *tokens) behind() place {
	switch t.where {
	case arrayStart, arrayValue:
		return arrayComma
	case objectValue:
		return objectComma
	}
	return atTop
}

func (t *tokens) opened(c byte) (token, error) {
	if !t.valueDue() {
		return token{}, t.strange(c)
	}
	t.open = append(t.open, t.behind())
	if t.where = arrayStart; c == '{' {
		t.where = objectStart
	}
	t.at++
	return token{kind: c}, nil
}

func (t *tokens) closed(c byte) (token, error) {
	if c == ']' && t.where != arrayStart && t.where != arrayComma || c == '}' && t.where != objectStart && t.where != objectComma {
		return token{}, t.strange(c)
	}
	last := len(t.open) - 1
	t.where, t.open = t.open[last], t.open[:last]
	t.at++
	return token{kind: c}, nil
}

func (t *tokens) scalar(c byte) (k token, err error) {
	key := c == '"' && (t.where == objectStart || t.where == objectKey)
	if !key && !t.valueDue() {
		return k, t.strange(c)
	}
	switch {
	case c == '"':
		k, err = t.string()
	case c == 't':
		k, err = t.literal("true")
	case c == 'f':
		k, err = t.literal("false")
	case c == 'n':
		k, err = t.literal("null")
	case c == '-' || c-'0' <= 9:
		k, err = t.number()
	default:
		err = t.strange(c)
	}
	if err != nil {
		return k, err
	}
	if t.where = t.behind(); key {
		t.where = objectColon
	}
	return k, nil
}

func (t *tokens) literal(word string) (token, error) {
	for i := range word {
		for t.end-t.at <= i {
			if err := t.within(); err != nil {
				return token{}, err
			}
		}
		if c := t.buf[t.at+i]; c != word[i] {
			return token{}, fmt.Errorf("invalid character %s in literal %s (expecting %s)", quoted(c), word, quoted(word[i]))
		}
	}
	t.at += len(word)
	return token{kind: word[0]}, nil
}

// string reads one that begins here. What is not plain ASCII is left to encoding/json.
func (t *tokens) string() (token, error) {
	plain := true
	for n := 1; ; {
		b := t.buf[t.at:t.end]
		for ; n < len(b); n++ {
			switch c := b[n]; {
			case c == '"':
				t.at += n + 1
				if plain {
					return token{'"', b[1:n]}, nil
				}
				var s string
				if err := json.Unmarshal(b[:n+1], &s); err != nil {
					t.at -= n + 1
					return token{}, err
				}
				return token{'"', []byte(s)}, nil
			case c == '\\':
				plain = false
				n++ // what is escaped ends no string
			case c < ' ':
				return token{}, fmt.Errorf("invalid character %s in string literal", quoted(c))
			case c >= 0x80:
				plain = false
			}
		}
		if err := t.within(); err != nil {
			return token{}, err
		}
	}
}

// number reads one that begins here: as much of what could be a number as is one.
func (t *tokens) number() (token, error) {
	n := 1
	for {
		b := t.buf[t.at:t.end]
		for n < len(b) && (b[n]-'0' <= 9 || b[n] == '.' || b[n]|0x20 == 'e' || b[n] == '-' || b[n] == '+') {
			n++
		}
		if n < len(b) {
			break
		}
		if err := t.fetch(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return token{}, err
		}
	}
	b := t.buf[t.at : t.at+n]
	end := numberEnd(b)
	if end < 0 {
		if t.at+n == t.end { // and the text with it
			return token{}, io.ErrUnexpectedEOF
		}
		return token{}, fmt.Errorf("%s is no number", short(string(b)))
	}
	t.at += end
	return token{text: b[:end]}, nil
}

// numberEnd is where the number that b begins with ends, -1 if there is none.
func numberEnd(b []byte) int {
	i := 0
	digits := func() bool {
		from := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i > from
	}
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i++; !digits() {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && bytes.IndexByte([]byte("+-"), b[i]) >= 0 {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

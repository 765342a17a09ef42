// Package jsontext finds where the parts of JSON text end, as encoding/json reads it, without making anything of them.
package jsontext

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNesting is encoding/json's: so many brackets may be open at once.
const maxNesting = 10000

// The functions below take JSON text and an offset in it, and return the one behind what they
// read, or -1 where encoding/json finds a syntax error.

func Space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Colon reads one with the space around it.
func Colon(b []byte, i int) int {
	i = Space(b, i)
	if i == len(b) || b[i] != ':' {
		return -1
	}
	return Space(b, i+1)
}

// Scanner skips values, and keeps what memory that takes. It is for one goroutine.
type Scanner struct {
	nesting []byte // the brackets that are open
}

// Skip reads a value within an object.
func (s *Scanner) Skip(b []byte, i int) int {
	if i < len(b) && (b[i] == '{' || b[i] == '[') {
		return s.nested(b, i)
	}
	return scalar(b, i)
}

// nested reads an object or array within the record's object.
func (s *Scanner) nested(b []byte, i int) int {
	open := s.nesting[:0]
	defer func() { s.nesting = open }()
	for i < len(b) {
		if c := b[i]; c == '{' || c == '[' {
			if open = append(open, c); len(open) == maxNesting { // with the record's own one more
				return -1
			}
			if i = Space(b, i+1); i == len(b) {
				return -1
			}
			if b[i] != closing(c) {
				if c == '{' {
					i = keyEnd(b, i)
				}
				if i < 0 {
					return -1
				}
				continue
			}
		} else if i = scalar(b, i); i < 0 {
			return -1
		}
		// Behind a value: what it is in goes on or ends, and with it what that is in.
		for {
			if i = Space(b, i); i == len(b) {
				return -1
			}
			in := open[len(open)-1]
			if b[i] == ',' {
				i = Space(b, i+1)
				break
			}
			if b[i] != closing(in) {
				return -1
			}
			i++
			if open = open[:len(open)-1]; len(open) == 0 {
				return i
			}
		}
		if open[len(open)-1] == '{' {
			if i = keyEnd(b, i); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// closing is the bracket that ends what c begins.
func closing(c byte) byte { return c + 2 }

// keyEnd reads a key and the colon behind it.
func keyEnd(b []byte, i int) int {
	if i == len(b) || b[i] != '"' {
		return -1
	}
	if i, _ = StringEnd(b, i); i < 0 {
		return -1
	}
	return Colon(b, i)
}

func scalar(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := StringEnd(b, i)
		return end
	case 't':
		return Literal(b, i, "true")
	case 'f':
		return Literal(b, i, "false")
	case 'n':
		return Literal(b, i, "null")
	}
	return numberEnd(b, i)
}

func Literal(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = digitsEnd(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = digitsEnd(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return digitsEnd(b, i)
	}
	return i
}

// digitsEnd reads one or more.
func digitsEnd(b []byte, i int) int {
	begin := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == begin {
		return -1
	}
	return i
}

// StringEnd reads a string from its quote on, and says whether what stands between the quotes is
// the string itself. As for encoding/json, it need not be UTF-8, and half of a surrogate pair may
// stand alone.
func StringEnd(b []byte, i int) (end int, plain bool) {
	plain = true
	for i++; i < len(b); i++ {
		c := b[i]
		if ordinary[c] {
			continue
		}
		switch {
		case c == '"':
			return i + 1, plain
		case c < ' ':
			return -1, false
		}
		plain = false
		if c == '\\' {
			if i = escapeEnd(b, i+1); i < 0 {
				return -1, false
			}
		}
	}
	return -1, false
}

// ordinary bytes of a string stand for themselves.
var ordinary = func() (is [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// escapeEnd reads what stands behind a backslash, and returns the offset of its last byte.
func escapeEnd(b []byte, i int) int {
	if i == len(b) {
		return -1
	}
	if b[i] == 'u' {
		if _, ok := hex4(b[i+1:]); !ok {
			return -1
		}
		return i + 4
	}
	if escapes[b[i]] == 0 {
		return -1
	}
	return i
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

var escapes = [256]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', '\\': '\\', '/': '/', '"': '"'}

// Unescape appends the string that stands between quotes, and is valid: with U+FFFD for each
// byte that is not UTF-8 and each half of a surrogate pair, as encoding/json reads it.
func Unescape(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\' && s[i+1] == 'u':
			r, _ := hex4(s[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				r = unicode.ReplacementChar
				if i < len(s) && s[i] == '\\' && s[i+1] == 'u' {
					high, _ := hex4(s[i-4:])
					low, _ := hex4(s[i+2:])
					if pair := utf16.DecodeRune(high, low); pair != unicode.ReplacementChar {
						r = pair
						i += 6
					}
				}
			}
			dst = utf8.AppendRune(dst, r)
		case c == '\\':
			dst = append(dst, escapes[s[i+1]])
			i += 2
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, size := utf8.DecodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
		}
	}
	return dst
}

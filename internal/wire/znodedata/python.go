package znodedata

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
)

// object writes one JSON object the way json.dumps does.
type object struct{ b []byte }

// begin overwrites what b holds.
func begin(b []byte) object { return object{append(b[:0], '{')} }

// key is one of ours: nothing in it needs to be escaped.
func (o *object) key(k string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ", "...)
	}
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, "\": "...)
}

func (o *object) str(k, v string) {
	o.key(k)
	if v == "" {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = pyString(o.b, v)
}

func (o *object) int(k string, v int64) {
	o.key(k)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *object) float(k string, v float64) {
	o.key(k)
	o.b = pyFloat(o.b, v)
}

func (o *object) end() []byte { return append(o.b, '}') }

// pyString appends s quoted, everything beyond ASCII escaped. Bytes that are not UTF-8
// become U+FFFD.
func pyString(b []byte, s string) []byte {
	b = append(b, '"')
	if plain(s) {
		b = append(b, s...)
		return append(b, '"')
	}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c >= ' ' && c <= '~':
			b = append(b, byte(c))
		case c > 0xffff:
			hi, lo := utf16.EncodeRune(c)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
}

// plain says that nothing in s is escaped, as in almost every name and address.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// pyFloat appends v as Python's repr: shortest digits that read back, an exponent below
// 1e-4 and from 1e16 on, and always something that says float.
func pyFloat(b []byte, v float64) []byte {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return append(b, "NaN"...)
	case math.IsInf(v, 1):
		return append(b, "Infinity"...)
	case math.IsInf(v, -1):
		return append(b, "-Infinity"...)
	case abs != 0 && (abs < 1e-4 || abs >= 1e16):
		return strconv.AppendFloat(b, v, 'e', -1, 64)
	case v == math.Trunc(v) && abs < 1<<53 && (v != 0 || !math.Signbit(v)):
		return append(strconv.AppendInt(b, int64(v), 10), ".0"...)
	case v == math.Trunc(v):
		return append(strconv.AppendFloat(b, v, 'f', -1, 64), ".0"...)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/compat/agentpb"
)

// What the original prints is what Python's print makes of its values. These functions
// write the same text.

// pyString is repr(s).
func pyString(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for i, c := range s {
		short, ok := escaped(c, string(quote))
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\udc%02x`, s[i]) // as surrogateescape reads bytes that are not UTF-8
		case ok:
			b.WriteString(short)
		case c < ' ' || c == 0x7f || c >= 0x80 && c <= 0xff && !unicode.IsPrint(c):
			fmt.Fprintf(&b, `\x%02x`, c)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// pyBytes is repr(b) of bytes.
func pyBytes(data []byte) string {
	quote := byte('\'')
	if s := string(data); strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	return "b" + string(quote) + asciiOf(data, string(quote), `\x%02x`) + string(quote)
}

// escaped is c behind a backslash, where it is one of quotes, a backslash or a common
// control character.
func escaped(c rune, quotes string) (string, bool) {
	switch {
	case c == '\\' || strings.ContainsRune(quotes, c):
		return `\` + string(c), true
	case c == '\n':
		return `\n`, true
	case c == '\r':
		return `\r`, true
	case c == '\t':
		return `\t`, true
	}
	return "", false
}

// asciiOf is data byte by byte, what is not printable ASCII in the format other.
func asciiOf[T ~string | ~[]byte](data T, quotes, other string) string {
	var b strings.Builder
	for _, c := range []byte(data) {
		short, ok := escaped(rune(c), quotes)
		switch {
		case ok:
			b.WriteString(short)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, other, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// pyList is repr of a list of strings.
func pyList(items []string) string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = pyString(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// pyBool is repr of a bool.
func pyBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pyNone is str of a value that may be None.
func pyNone(s string) string {
	if s == "" {
		return "None"
	}
	return s
}

// textAddresses is an AddressList in protobuf's text form, without the last line's end.
func textAddresses(l *agentpb.AddressList) []string {
	lines := make([]string, 0, len(l.GetAddress()))
	for _, a := range l.GetAddress() {
		lines = append(lines, `address: "`+asciiOf(a, `"'`, `\%03o`)+`"`)
	}
	return lines
}

// infoOrder is how the original orders the keys of bzid_info; all others are sorted.
var infoOrder = []string{"model_info", "container_info", "layout_info", "deploy_config", "bindings", "service_info", "saved_models"}

// pyDumps is json.dumps(v, indent=2) of what encoding/json decodes, numbers as
// json.Number.
func pyDumps(v any, indent string) string {
	inner := indent + "  "
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return "{}"
		}
		rank := func(k string) int {
			if i := slices.Index(infoOrder, k); i >= 0 {
				return i
			}
			return len(infoOrder)
		}
		keys := slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(v))), func(a, b string) int { return rank(a) - rank(b) })
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = inner + pyJSON(k) + ": " + pyDumps(v[k], inner)
		}
		return "{\n" + strings.Join(parts, ",\n") + "\n" + indent + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = inner + pyDumps(x, inner)
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + indent + "]"
	case string:
		return pyJSON(v)
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "true"
		}
		return "false"
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}

// pyJSON is json.dumps of a string: ASCII alone.
func pyJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		short, ok := escaped(c, `"`)
		switch {
		case ok:
			b.WriteString(short)
		case c == '\b':
			b.WriteString(`\b`)
		case c == '\f':
			b.WriteString(`\f`)
		case c >= ' ' && c <= '~':
			b.WriteRune(c)
		case c > 0xffff:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(c>>10), 0xdc00+(c&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

package instances

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// node is a line of a dump with what lies below it.
type node struct {
	indent int
	key    string // a field's name, or an element's number
	value  string
	below  []*node
}

// dumpLine is `"key":`, `0:`, `"key": value` or `0: value`.
var dumpLine = regexp.MustCompile(`^([ \t]*)(?:"([^"]*)"|(\w+)):[ \t]*(.*?)[ \t\r,]*$`)

// maxDumpDepth bounds how deep a dump's lines lie below each other.
const maxDumpDepth = 64

// parseDump reads a tree of lines as a JSON object.
func parseDump(data []byte) ([]byte, error) {
	root := &node{indent: -1}
	open := []*node{root}
	for n, line := range strings.Split(string(data), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		m := dumpLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("line %d, %.40q, is no key with a colon", n+1, line)
		}
		at := &node{indent: len(m[1]), key: m[2] + m[3], value: m[4]}
		for len(open) > 1 && open[len(open)-1].indent >= at.indent {
			open = open[:len(open)-1]
		}
		above := open[len(open)-1]
		if above.value != "" {
			return nil, fmt.Errorf("line %d lies below %q, which has the value %.40s", n+1, above.key, above.value)
		}
		if len(open) > maxDumpDepth {
			return nil, fmt.Errorf("line %d lies more than %d deep", n+1, maxDumpDepth)
		}
		above.below = append(above.below, at)
		open = append(open, at)
	}
	var b bytes.Buffer
	err := root.object(&b)
	return b.Bytes(), err
}

// json writes what a line stands for: a list where the lines below are numbered.
func (n *node) json(b *bytes.Buffer) error {
	switch {
	case len(n.below) == 0 && n.value == "":
		b.WriteString("null")
	case len(n.below) == 0 && json.Valid([]byte(n.value)):
		b.WriteString(n.value)
	case len(n.below) == 0:
		text, err := json.Marshal(n.value)
		if err != nil {
			return err
		}
		b.Write(text)
	case isIndex(n.below[0].key):
		return n.list(b)
	default:
		return n.object(b)
	}
	return nil
}

func (n *node) list(b *bytes.Buffer) error {
	for i, e := range n.below {
		if !isIndex(e.key) {
			return fmt.Errorf("%q stands among the elements of the list %q", e.key, n.key)
		}
		b.WriteByte("[,"[min(i, 1)])
		if err := e.json(b); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func (n *node) object(b *bytes.Buffer) error {
	b.WriteByte('{')
	for i, e := range n.below {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(e.key)
		if err != nil {
			return err
		}
		b.Write(append(key, ':'))
		if err := e.json(b); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func isIndex(key string) bool {
	_, err := strconv.ParseUint(key, 10, 31)
	return err == nil
}

// formatDump writes JSON as a tree of lines.
func formatDump(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var b bytes.Buffer
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(err, errors.New("a dump is of a message"))
	}
	if err := dumpBelow(d, &b, true, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b.Bytes(), nil
}

// dumpBelow writes the members of the object or the elements of the list that d stands in.
func dumpBelow(d *json.Decoder, b *bytes.Buffer, object bool, depth int) error {
	for i := 0; d.More(); i++ {
		key := strconv.Itoa(i)
		if object {
			t, err := d.Token()
			if err != nil {
				return err
			}
			key = strconv.Quote(fmt.Sprint(t))
		}
		fmt.Fprintf(b, "%s%s:", strings.Repeat("  ", depth), key)
		t, err := d.Token()
		if err != nil {
			return err
		}
		if delim, ok := t.(json.Delim); ok {
			if !d.More() { // nothing below would say that it is there
				if _, err := d.Token(); err != nil {
					return err
				}
				fmt.Fprintf(b, " %s\n", map[json.Delim]string{'{': "{}", '[': "[]"}[delim])
				continue
			}
			b.WriteByte('\n')
			if err := dumpBelow(d, b, delim == '{', depth+1); err != nil {
				return err
			}
			continue
		}
		text, err := json.Marshal(t)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, " %s\n", text)
	}
	_, err := d.Token() // what closes it
	return err
}

package rating

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLine bounds a line of a CSV file in bytes; a longer one is a broken row.
const MaxLine = 4096

// Broken is a row that could not be read.
type Broken struct {
	Line   int    // 1 is the header
	Reason string // which rule it broke
	Raw    []byte // the line without its end, at most MaxLine bytes of it
}

// table reads the rows of a CSV file, each a line, in constant memory.
type table struct {
	r      *bufio.Reader
	broken func(Broken)
	line   int
}

// newTable reads the header.
func newTable(r io.Reader, what, header string, broken func(Broken)) (table, error) {
	t := table{r: bufio.NewReaderSize(r, MaxLine+2), broken: broken}
	head, _, err := t.readLine()
	if err != nil && !errors.Is(err, io.EOF) {
		return table{}, fmt.Errorf("read the header: %w", err)
	}
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	if fields, err := fieldsOf(string(head)); err != nil || strings.Join(fields, ",") != header {
		return table{}, fmt.Errorf("the first line is %.60q: a MovieLens %s file begins with %q", head, what, header)
	}
	return t, nil
}

// next gives parse the next row that it takes, and reports those that it refuses; false at
// the end of the file.
func (t *table) next(parse func(row string) error) (bool, error) {
	for {
		raw, whole, err := t.readLine()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("line %d: %w", t.line, err)
		}
		if len(raw) == 0 && whole {
			continue
		}
		reason := fmt.Sprintf("the line is longer than %d bytes", MaxLine)
		if whole {
			err := parse(string(raw))
			if err == nil {
				return true, nil
			}
			reason = err.Error()
		}
		if t.broken != nil {
			t.broken(Broken{Line: t.line, Reason: reason, Raw: bytes.Clone(raw)})
		}
	}
}

// readLine returns a line without its end, valid until the next call. whole is false
// when only its first MaxLine bytes are returned; the rest is skipped.
func (t *table) readLine() (line []byte, whole bool, err error) {
	t.line++
	line, err = t.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		head := bytes.Clone(line[:MaxLine])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = t.r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		return head, false, nil
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, false, err
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > MaxLine {
		return line[:MaxLine], false, nil
	}
	return line, true, nil
}

// fieldsOf splits a row. A field may be quoted as RFC 4180 has it, and spaces around a field,
// inside or outside its quotes, are none of it, which encoding/csv does not take.
func fieldsOf(row string) ([]string, error) {
	var fields []string
	for {
		row = strings.TrimLeft(row, " \t")
		var field string
		if strings.HasPrefix(row, `"`) {
			end := closing(row)
			if end < 0 {
				return nil, errors.New("the row is no CSV: a quoted field has no end")
			}
			field = strings.TrimSpace(strings.ReplaceAll(row[1:end], `""`, `"`))
			row = strings.TrimLeft(row[end+1:], " \t")
			if row != "" && row[0] != ',' {
				return nil, errors.New("the row is no CSV: there is something between a closing quote and the comma")
			}
		} else {
			end := strings.IndexByte(row, ',')
			if end < 0 {
				end = len(row)
			}
			field, row = strings.TrimRight(row[:end], " \t"), row[end:]
			if strings.Contains(field, `"`) {
				return nil, errors.New("the row is no CSV: a quote stands in a field that is not quoted")
			}
		}
		if fields = append(fields, field); row == "" {
			return fields, nil
		}
		row = row[1:]
	}
}

// closing is where the quote is that ends the field with which row begins, -1 if none does.
func closing(row string) int {
	for i := 1; i < len(row); i++ {
		if row[i] != '"' {
			continue
		}
		if i+1 == len(row) || row[i+1] != '"' {
			return i
		}
		i++ // two quotes are one of the field
	}
	return -1
}

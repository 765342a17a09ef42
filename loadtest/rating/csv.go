package rating

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Header is the first line of a MovieLens ratings.csv.
const Header = "userId,movieId,rating,timestamp"

// MaxLine bounds a line of a CSV file in bytes; a longer one is a broken row.
const MaxLine = 4096

// Broken is a row that could not be read as a rating.
type Broken struct {
	Line   int    // 1 is the header
	Reason string // which rule it broke
	Raw    []byte // the line without its end, at most MaxLine bytes of it
}

// CSV reads ratings row by row in constant memory. Rows may end in LF or CRLF and the
// last one may lack its end; blank lines are no rows. It is not safe for concurrent use.
type CSV struct {
	r      *bufio.Reader
	broken func(Broken)
	line   int
	err    error
}

// NewCSV reads the header. Each broken row goes to broken (nil: nowhere)
// and does not stop the reading.
func NewCSV(r io.Reader, broken func(Broken)) (*CSV, error) {
	c := &CSV{r: bufio.NewReaderSize(r, MaxLine+2), broken: broken}
	head, _, err := c.readLine()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	if fields, err := fieldsOf(string(head)); err != nil || strings.Join(fields, ",") != Header {
		return nil, fmt.Errorf("the first line is %.60q: a MovieLens ratings file begins with %q", head, Header)
	}
	return c, nil
}

// Next returns the next readable row; false at the end of the file or on an error,
// which Err then returns.
func (c *CSV) Next() (Rating, bool) {
	for c.err == nil {
		raw, whole, err := c.readLine()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = fmt.Errorf("line %d: %w", c.line, err)
			}
			return Rating{}, false
		}
		if len(raw) == 0 && whole {
			continue
		}
		reason := fmt.Sprintf("the line is longer than %d bytes", MaxLine)
		if whole {
			r, err := parseRow(raw)
			if err == nil {
				return r, true
			}
			reason = err.Error()
		}
		if c.broken != nil {
			c.broken(Broken{Line: c.line, Reason: reason, Raw: bytes.Clone(raw)})
		}
	}
	return Rating{}, false
}

// Err is the read error that ended the file early, nil at its proper end.
func (c *CSV) Err() error { return c.err }

// readLine returns a line without its end, valid until the next call. whole is false
// when only its first MaxLine bytes are returned; the rest is skipped.
func (c *CSV) readLine() (line []byte, whole bool, err error) {
	c.line++
	line, err = c.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		head := bytes.Clone(line[:MaxLine])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = c.r.ReadSlice('\n')
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

// fieldsOf splits a row; fields may be quoted (RFC 4180) and begin with spaces.
func fieldsOf(row string) ([]string, error) {
	if !strings.ContainsAny(row, "\" ") {
		return strings.Split(row, ","), nil
	}
	r := csv.NewReader(strings.NewReader(row))
	r.TrimLeadingSpace = true
	fields, err := r.Read()
	if err != nil {
		if at := (*csv.ParseError)(nil); errors.As(err, &at) {
			err = at.Err // its line is that of a row alone
		}
		return nil, fmt.Errorf("the row is no CSV: %w", err)
	}
	for i, f := range fields {
		fields[i] = strings.TrimSpace(f)
	}
	return fields, nil
}

func parseRow(row []byte) (Rating, error) {
	fields, err := fieldsOf(string(row))
	if err != nil {
		return Rating{}, err
	}
	if len(fields) != 4 {
		return Rating{}, fmt.Errorf("the row has %d fields, not 4", len(fields))
	}
	var r Rating
	for i, to := range [...]*int64{0: &r.User, 1: &r.Movie, 3: &r.Timestamp} {
		if to == nil {
			continue
		}
		v, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Rating{}, fmt.Errorf("%s %.40q is not a whole number", strings.Split(Header, ",")[i], fields[i])
		}
		*to = v
	}
	v, err := strconv.ParseFloat(fields[2], 64)
	if err != nil {
		return Rating{}, fmt.Errorf("rating %.40q is not a number", fields[2])
	}
	r.Rating = v
	if err := r.Validate(); err != nil {
		return Rating{}, err
	}
	return r, nil
}

// ReadCSV reads a whole file in file order.
func ReadCSV(r io.Reader, broken func(Broken)) ([]Rating, error) {
	c, err := NewCSV(r, broken)
	if err != nil {
		return nil, err
	}
	var all []Rating
	for {
		r, ok := c.Next()
		if !ok {
			return all, c.Err()
		}
		all = append(all, r)
	}
}

package rating

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Header is the first line of a MovieLens ratings.csv.
const Header = "userId,movieId,rating,timestamp"

// CSV reads ratings row by row in constant memory. Rows may end in LF or CRLF and the
// last one may lack its end; blank lines are no rows. It is not safe for concurrent use.
type CSV struct {
	table
	err error
}

// NewCSV reads the header. Each broken row goes to broken (nil: nowhere)
// and does not stop the reading.
func NewCSV(r io.Reader, broken func(Broken)) (*CSV, error) {
	t, err := newTable(r, "ratings", Header, broken)
	if err != nil {
		return nil, err
	}
	return &CSV{table: t}, nil
}

// Next returns the next readable row; false at the end of the file or on an error,
// which Err then returns.
func (c *CSV) Next() (r Rating, ok bool) {
	if c.err != nil {
		return Rating{}, false
	}
	ok, c.err = c.next(func(row string) (err error) {
		r, err = parseRow(row)
		return err
	})
	return r, ok
}

// Err is the read error that ended the file early, nil at its proper end.
func (c *CSV) Err() error { return c.err }

func parseRow(row string) (Rating, error) {
	fields, err := fieldsOf(row)
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
		if *to, err = whole(strings.Split(Header, ",")[i], fields[i]); err != nil {
			return Rating{}, err
		}
	}
	if r.Rating, err = strconv.ParseFloat(fields[2], 64); err != nil {
		return Rating{}, fmt.Errorf("rating %.40q is not a number", fields[2])
	}
	return r, r.Validate()
}

// whole reads a whole number, also one that a spreadsheet or a data frame wrote as 1.0 or
// 9.64982703e8: up to 2^53 such a number is exact.
func whole(name, field string) (int64, error) {
	if v, err := strconv.ParseInt(field, 10, 64); err == nil {
		return v, nil
	}
	v, err := strconv.ParseFloat(field, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, fmt.Errorf("%s %.40q is not a whole number", name, field)
	}
	return int64(v), nil
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

// Package rating is one act of rating: the record on the training topic, the row of a
// MovieLens ratings.csv, and the order in which ratings happened.
package rating

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Liked is the rating from which on a movie counts as liked.
const Liked = 3.5

// MaxID bounds user and movie ids: a feature id keeps 48 bits of them.
const MaxID = 1<<48 - 1

// ErrInvalid is every refusal of a record or row; the message says which rule it broke.
var ErrInvalid = errors.New("invalid rating")

// Rating says that a user gave a movie some stars at a time.
type Rating struct {
	User      int64   // 0 .. MaxID
	Movie     int64   // 0 .. MaxID
	Rating    float64 // stars, 0 .. 5
	Timestamp int64   // seconds since 1970, never negative
}

// Label is what a model learns to predict: did the user like the movie?
func (r Rating) Label() bool { return r.Rating >= Liked }

// Validate reports the first rule r breaks, as an [ErrInvalid].
func (r Rating) Validate() error {
	switch {
	case r.User < 0 || r.User > MaxID:
		return fmt.Errorf("%w: userId %d is not within 0 and 2^48-1", ErrInvalid, r.User)
	case r.Movie < 0 || r.Movie > MaxID:
		return fmt.Errorf("%w: movieId %d is not within 0 and 2^48-1", ErrInvalid, r.Movie)
	case !(r.Rating >= 0 && r.Rating <= 5): // written so that NaN fails
		return fmt.Errorf("%w: rating %v is not within 0 and 5", ErrInvalid, r.Rating)
	case r.Timestamp < 0:
		return fmt.Errorf("%w: timestamp %d lies before 1970", ErrInvalid, r.Timestamp)
	}
	return nil
}

// AppendJSON appends the record of the training topic, always the same bytes for the
// same rating: {"userId":1,"movieId":2,"rating":4.0,"timestamp":964982703}. The rating
// must be finite.
func (r Rating) AppendJSON(b []byte) []byte {
	b = append(b, `{"userId":`...)
	b = strconv.AppendInt(b, r.User, 10)
	b = append(b, `,"movieId":`...)
	b = strconv.AppendInt(b, r.Movie, 10)
	b = append(b, `,"rating":`...)
	b = strconv.AppendFloat(b, r.Rating, 'f', -1, 64)
	if r.Rating == math.Trunc(r.Rating) {
		b = append(b, ".0"...)
	}
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendInt(b, r.Timestamp, 10)
	return append(b, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (r Rating) MarshalJSON() ([]byte, error) {
	if math.IsNaN(r.Rating) || math.IsInf(r.Rating, 0) {
		return nil, fmt.Errorf("%w: rating %v cannot be written as JSON", ErrInvalid, r.Rating)
	}
	return r.AppendJSON(nil), nil
}

// Decode reads one record strictly: one object with the four fields of a rating, each once,
// in any order, spelt as they are, within the bounds of Validate. The features of a Record may
// stand beside them, and nothing else.
func Decode(data []byte) (Rating, error) {
	var r Rating
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	bad := func(err error) (Rating, error) {
		return Rating{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if t, err := d.Token(); err != nil {
		return bad(err)
	} else if t != json.Delim('{') {
		return bad(fmt.Errorf("the record is %v, not an object", t))
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return bad(err)
		}
		key := t.(string) // the decoder allows nothing else here
		if seen[key] {
			return bad(fmt.Errorf("field %q stands there twice", key))
		}
		seen[key] = true
		if err := r.field(d, key); err != nil {
			return bad(fmt.Errorf("field %q: %w", key, err))
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return bad(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad(errors.New("there is something behind the object"))
	}
	for _, key := range [...]string{"userId", "movieId", "rating", "timestamp"} {
		if !seen[key] {
			return bad(fmt.Errorf("field %q is missing", key))
		}
	}
	return r, r.Validate()
}

// field reads the value of a field.
func (r *Rating) field(d *json.Decoder, key string) error {
	switch key {
	case "genres", "liked", "disliked", "recent":
		return d.Decode(new([]uint64))
	case "genre", "mix", "year", "decade", "age", "hour", "mood", "streak":
		return d.Decode(new(uint64))
	}
	v, err := d.Token()
	if err != nil {
		return err
	}
	n, ok := v.(json.Number)
	if !ok {
		return errors.New("it is not a number")
	}
	switch key {
	case "userId":
		r.User, err = strconv.ParseInt(n.String(), 10, 64)
	case "movieId":
		r.Movie, err = strconv.ParseInt(n.String(), 10, 64)
	case "rating":
		r.Rating, err = strconv.ParseFloat(n.String(), 64)
	case "timestamp":
		r.Timestamp, err = strconv.ParseInt(n.String(), 10, 64)
	default:
		err = errors.New("unknown field")
	}
	return err
}

// Compare orders ratings by time, then user, then movie, then stars.
func Compare(a, b Rating) int {
	return cmp.Or(
		cmp.Compare(a.Timestamp, b.Timestamp),
		cmp.Compare(a.User, b.User),
		cmp.Compare(a.Movie, b.Movie),
		cmp.Compare(a.Rating, b.Rating),
	)
}

// Sort puts ratings into the order in which they happened.
func Sort(rs []Rating) { slices.SortFunc(rs, Compare) }

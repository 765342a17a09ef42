package rating

import (
	"strconv"
	"time"
)

// HistoryLength is how many of a user's latest ratings a record tells of.
const HistoryLength = 20

// Features are what was known when a rating happened, before its stars: of the movie from the
// catalog, of the user from the ratings before. The names in the record are in brackets.
type Features struct {
	Genres   []int64 // ids of the movie's [genres]
	Genre    int64   // [genre]: the first of them; 0: none
	Mix      int64   // [mix]: the set of them, one id for each set; 0: none
	Year     int64   // [year] of release; 0: unknown, as are decade and age then
	Decade   int64   // [decade] of release: 1990
	Age      int64   // [age]: years since the release
	Hour     int64   // [hour] of the day, UTC
	Liked    []int64 // [liked] movies among the user's latest HistoryLength ratings, latest first
	Disliked []int64 // [disliked] movies, likewise
	Mood     int64   // [mood]: 32 times the liked ones of these ratings, and the disliked ones
	Streak   int64   // [streak]: the latest 5 of them as bits, latest highest, 1 for a liked one, behind a leading 1
	Recent   []int64 // [recent]: for each of these ratings, latest first, twice its place from 0, and one more if it was a liked one
}

// Fields are the names of a record's fields that hold ids, for a person.
const Fields = "userId, movieId, timestamp, genres, genre, mix, year, decade, age, hour, liked, disliked, mood, streak and recent"

// Record is a rating with its features, as it stands on the training topic.
type Record struct {
	Rating
	Features
}

// AppendJSON appends the record, always the same bytes for the same record; what is unknown or
// empty is left out.
func (r Record) AppendJSON(b []byte) []byte {
	b = r.Rating.AppendJSON(b)
	b = b[:len(b)-1]
	b = appendList(b, "genres", r.Genres)
	b = appendNumber(b, "genre", r.Genre)
	b = appendNumber(b, "mix", r.Mix)
	b = appendNumber(b, "year", r.Year)
	b = appendNumber(b, "decade", r.Decade)
	b = appendNumber(b, "age", r.Age)
	b = appendNumber(b, "hour", r.Hour)
	b = appendList(b, "liked", r.Liked)
	b = appendList(b, "disliked", r.Disliked)
	b = appendNumber(b, "mood", r.Mood)
	b = appendNumber(b, "streak", r.Streak)
	b = appendList(b, "recent", r.Recent)
	return append(b, '}')
}

func appendNumber(b []byte, name string, v int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, v, 10)
}

func appendList(b []byte, name string, vs []int64) []byte {
	if len(vs) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":[`...)
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return append(b, ']')
}

// IDs are the feature ids of a field by its name in the record, as a model reads them; false
// for a field that records do not have.
func (r Record) IDs(field string) ([]int64, bool) {
	switch field {
	case "userId":
		return []int64{r.User}, true
	case "movieId":
		return []int64{r.Movie}, true
	case "timestamp":
		return []int64{r.Timestamp}, true
	case "genres":
		return r.Genres, true
	case "genre":
		return []int64{r.Genre}, true
	case "mix":
		return []int64{r.Mix}, true
	case "year":
		return []int64{r.Year}, true
	case "decade":
		return []int64{r.Decade}, true
	case "age":
		return []int64{r.Age}, true
	case "hour":
		return []int64{r.Hour}, true
	case "liked":
		return r.Liked, true
	case "disliked":
		return r.Disliked, true
	case "mood":
		return []int64{r.Mood}, true
	case "streak":
		return []int64{r.Streak}, true
	case "recent":
		return r.Recent, true
	}
	return nil, false
}

// History gives ratings their features. It depends on nothing but the ratings that it has seen
// and their order, so that who plays them again gets the same records. Its memory is
// HistoryLength ratings of each user. It is not safe for concurrent use.
type History struct {
	catalog Catalog
	users   map[int64][]past // latest first
}

type past struct {
	movie int64
	liked bool
}

// NewHistory returns a history without ratings; catalog may be nil.
func NewHistory(catalog Catalog) *History {
	return &History{catalog: catalog, users: map[int64][]past{}}
}

// Add returns the record of the next rating: what was known before it.
func (h *History) Add(r Rating) Record {
	rec := Record{Rating: r, Features: h.Of(r.User, r.Movie, r.Timestamp)}
	was := h.users[r.User]
	now := make([]past, 0, HistoryLength)
	now = append(now, past{r.Movie, r.Label()})
	h.users[r.User] = append(now, was[:min(len(was), HistoryLength-1)]...)
	return rec
}

// Of are the features that a rating of the movie would have now.
func (h *History) Of(user, movie, timestamp int64) Features {
	at := time.Unix(timestamp, 0).UTC()
	f := Features{Hour: int64(at.Hour())}
	if h.catalog != nil {
		if m, ok := h.catalog.Movie(movie); ok {
			for _, g := range m.Genres {
				f.Genres = append(f.Genres, GenreID(g))
			}
			f.Genre, f.Mix = mixed(f.Genres)
			if y := int64(m.Year); y > 0 {
				f.Year, f.Decade, f.Age = y, y/10*10, max(0, int64(at.Year())-y)
			}
		}
	}
	for i, p := range h.users[user] {
		place := int64(2 * i)
		if p.liked {
			f.Liked, place = append(f.Liked, p.movie), place+1
		} else {
			f.Disliked = append(f.Disliked, p.movie)
		}
		f.Recent = append(f.Recent, place)
	}
	f.Mood = int64(32*len(f.Liked) + len(f.Disliked))
	f.Streak = 1
	for _, place := range f.Recent[:min(len(f.Recent), streak)] {
		f.Streak = 2*f.Streak + place%2
	}
	return f
}

// streak is how many of the latest ratings are in order.
const streak = 5

// mixed is the first of a movie's genres and an id of their set: a bit for each of MovieLens', and
// the others mixed in.
func mixed(genres []int64) (first, mix int64) {
	for _, g := range genres {
		if g <= int64(len(Genres)) {
			mix |= 1 << (g - 1)
		} else {
			mix ^= g << 14 & MaxID // beyond the bits
		}
	}
	if len(genres) > 0 {
		first = genres[0]
	}
	return first, mix
}

package rating

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
)

// MoviesHeader is the first line of a MovieLens movies.csv.
const MoviesHeader = "movieId,title,genres"

// Movie is what is known of a movie before anybody has rated it.
type Movie struct {
	Title  string
	Year   int // of release; 0: unknown
	Genres []string
}

// Catalog knows movies by their ids. It is safe for concurrent use.
type Catalog interface {
	Movie(id int64) (Movie, bool)
}

// Movies is a Catalog that was read from a file.
type Movies map[int64]Movie

func (m Movies) Movie(id int64) (Movie, bool) {
	v, ok := m[id]
	return v, ok
}

// ReadMovies reads a MovieLens movies.csv: titles end with the year of release in brackets,
// genres are separated by |. Each broken row goes to broken (nil: nowhere).
func ReadMovies(r io.Reader, broken func(Broken)) (Movies, error) {
	t, err := newTable(r, "movies", MoviesHeader, broken)
	if err != nil {
		return nil, err
	}
	all := Movies{}
	for {
		ok, err := t.next(func(row string) error { return all.add(row) })
		if !ok {
			return all, err
		}
	}
}

func (m Movies) add(row string) error {
	fields, err := fieldsOf(row)
	if err != nil {
		return err
	}
	if len(fields) != 3 {
		return fmt.Errorf("the row has %d fields, not 3", len(fields))
	}
	id, err := whole("movieId", fields[0])
	switch {
	case err != nil:
		return err
	case id < 0 || id > MaxID:
		return fmt.Errorf("movieId %d is not within 0 and 2^48-1", id)
	case fields[1] == "":
		return errors.New("the movie has no title")
	}
	title, year := released(fields[1])
	v := Movie{Title: title, Year: year}
	for g := range strings.SplitSeq(fields[2], "|") {
		if g = strings.TrimSpace(g); g != "" && g != "(no genres listed)" {
			v.Genres = append(v.Genres, g)
		}
	}
	m[id] = v
	return nil
}

// released splits "Toy Story (1995)".
func released(title string) (string, int) {
	at := strings.LastIndexByte(title, '(')
	if at <= 0 || !strings.HasSuffix(title, ")") || len(title)-at != len("(1995)") {
		return title, 0
	}
	year, err := strconv.Atoi(title[at+1 : len(title)-1])
	if err != nil || year < 1800 {
		return title, 0
	}
	return strings.TrimSpace(title[:at]), year
}

// Genres are those of MovieLens. A genre's id is its place here, from 1 on.
var Genres = []string{"Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
	"Film-Noir", "Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"}

// GenreID is the feature id of a genre, for one that MovieLens does not have a hash of its name.
func GenreID(name string) int64 {
	if i := slices.Index(Genres, name); i >= 0 {
		return int64(i + 1)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return int64(h.Sum32()) | 1<<32
}

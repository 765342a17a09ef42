// Package gen makes the ratings that a load test plays: a MovieLens file in the order in
// which its ratings happened, or a simulated audience whose true tastes are known.
package gen

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/loadtest/rating"
)

// Source is a stream of ratings in time order. It is not safe for concurrent use.
type Source interface {
	// Next returns the next rating, and false when there are no more.
	Next() (rating.Rating, bool)
	// Best is the true probability that the rating last returned is a liked one, the
	// best score any model could give it; false where nobody can know it.
	Best() (float64, bool)
	// Total is how many ratings there are in all; 0: without end.
	Total() int
	// Catalog knows the movies that are rated; nil: nothing is known of them.
	Catalog() rating.Catalog
}

// File is a whole ratings file, sorted.
type File struct {
	all    []rating.Rating
	movies rating.Movies
	next   int
	rows   int
}

// OpenCSV reads a MovieLens ratings.csv and sorts it by timestamp, user and movie.
// Broken rows go to broken and are left out. A movies.csv beside it becomes the catalog; its
// broken rows are left out, and their movies are unknown.
func OpenCSV(path string, broken func(rating.Broken)) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the ratings: %w", err)
	}
	defer f.Close()
	bad := 0
	all, err := rating.ReadCSV(f, func(b rating.Broken) {
		bad++
		if broken != nil {
			broken(b)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	src := Ratings(all)
	src.rows += bad
	if src.movies, err = openMovies(filepath.Join(filepath.Dir(path), "movies.csv")); err != nil {
		return nil, err
	}
	return src, nil
}

// openMovies reads a movies.csv, nothing where there is none.
func openMovies(path string) (rating.Movies, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the movies: %w", err)
	}
	defer f.Close()
	movies, err := rating.ReadMovies(f, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return movies, nil
}

// Ratings sorts rs, which it keeps, and plays them.
func Ratings(rs []rating.Rating) *File {
	rating.Sort(rs)
	return &File{all: rs, rows: len(rs)}
}

func (f *File) Next() (rating.Rating, bool) {
	if f.next == len(f.all) {
		return rating.Rating{}, false
	}
	f.next++
	return f.all[f.next-1], true
}

// Catalog is nil for a file without a movies.csv beside it.
func (f *File) Catalog() rating.Catalog {
	if f.movies == nil {
		return nil // not a Catalog that holds nil
	}
	return f.movies
}

// Best is unknown for real ratings.
func (f *File) Best() (float64, bool) { return 0, false }

// Total is how many readable ratings the file has.
func (f *File) Total() int { return len(f.all) }

// Rows is how many rows the file has, broken ones included.
func (f *File) Rows() int { return f.rows }

// Limit ends a source after n ratings; n <= 0 leaves it as it is.
func Limit(s Source, n int) Source {
	if n <= 0 {
		return s
	}
	return &limited{Source: s, left: n, n: n}
}

type limited struct {
	Source
	left, n int
}

func (l *limited) Next() (rating.Rating, bool) {
	if l.left == 0 {
		return rating.Rating{}, false
	}
	l.left--
	return l.Source.Next()
}

func (l *limited) Total() int {
	if t := l.Source.Total(); t > 0 {
		return min(t, l.n)
	}
	return l.n
}

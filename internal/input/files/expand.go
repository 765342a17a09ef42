package files

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/vfs"
)

// maxFiles bounds a list: each file is opened, and has a place in the set.
const maxFiles = 1 << 20

// Expand returns the files that patterns name, each once, where it was named first. A pattern is a
// path, here or of HDFS as package vfs has them; a glob, whose files come in the order of their names; a list of these with commas;
// @file, which holds one of them in each line, except for blank ones and those that begin with #; and
// any of them with {DATE(20260101,20260131)} (days, or hours where the numbers have ten digits) or
// {INT(0,15)}, which stand for every value from the first to the last. A pattern that names no file
// is ErrNone; of a range it is enough that one value does.
func Expand(patterns []string) ([]string, error) {
	x := expansion{seen: map[string]bool{}}
	for _, list := range patterns {
		for _, p := range split(list) {
			if err := x.add(p, true); err != nil {
				return nil, err
			}
		}
	}
	if len(x.paths) == 0 {
		return nil, fmt.Errorf("%w: no pattern was given", ErrNone)
	}
	return x.paths, nil
}

// expansion is the list so far.
type expansion struct {
	paths []string
	seen  map[string]bool
}

// split is the elements of a list with commas; those within braces are no separators.
func split(list string) (out []string) {
	depth, begin := 0, 0
	flush := func(end int) {
		if s := strings.TrimSpace(list[begin:end]); s != "" {
			out = append(out, s)
		}
		begin = end + 1
	}
	for i := range len(list) {
		switch list[i] {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth <= 0 {
				flush(i)
			}
		}
	}
	flush(len(list))
	return out
}

func (x *expansion) add(pattern string, lists bool) error {
	if name, ok := strings.CutPrefix(pattern, "@"); ok {
		if !lists {
			return fmt.Errorf("%s stands in a list of files: a list names no other list", pattern)
		}
		return x.addList(name)
	}
	values, err := ranges(pattern, nil)
	if err != nil {
		return err
	}
	found := false
	for _, v := range values {
		paths, err := matches(v)
		if err != nil {
			return err
		}
		for _, p := range paths {
			found = true
			if p = vfs.Clean(p); x.seen[p] {
				continue
			}
			if len(x.paths) == maxFiles {
				return fmt.Errorf("%s: more than %d files are named: put the records into fewer", pattern, maxFiles)
			}
			x.seen[p] = true
			x.paths = append(x.paths, p)
		}
	}
	if !found {
		return fmt.Errorf("%w that %s names", ErrNone, pattern)
	}
	return nil
}

// addList adds what the lines of a file name.
func (x *expansion) addList(name string) error {
	f, err := vfs.Open(name)
	if err != nil {
		return fmt.Errorf("read the list of files: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, p := range split(line) {
			if err := x.add(p, false); err != nil {
				return fmt.Errorf("%s, line %d: %w", name, n, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the list of files %s: %w", name, err)
	}
	return nil
}

// matches is the files of a path or a glob.
func matches(pattern string) ([]string, error) {
	if info, err := vfs.Stat(pattern); err == nil {
		if info.IsDir() {
			return nil, fmt.Errorf("%s is a folder: name the files in it, as in %s", pattern, vfs.Join(pattern, "*"))
		}
		return []string{pattern}, nil
	}
	found, err := vfs.Glob(pattern)
	if errors.Is(err, path.ErrBadPattern) {
		return nil, fmt.Errorf("%s is no pattern of names: %w", pattern, err)
	}
	if err != nil {
		return nil, err
	}
	var regular []string
	for _, p := range found { // Glob sorts
		if info, err := vfs.Stat(p); err != nil {
			return nil, err
		} else if info.Mode()&fs.ModeDir == 0 {
			regular = append(regular, p)
		}
	}
	return regular, nil
}

var ranged = regexp.MustCompile(`\{ *(DATE|INT) *\( *(\d+) *, *(\d+) *\) *\}`)

// ranges appends the pattern with every value of its ranges, the first range changing slowest.
func ranges(pattern string, to []string) ([]string, error) {
	m := ranged.FindStringSubmatchIndex(pattern)
	if m == nil {
		if strings.Contains(pattern, "{DATE") || strings.Contains(pattern, "{INT") {
			return nil, fmt.Errorf("%s: write {DATE(20260101,20260131)}, {DATE(2026010100,2026010123)} or {INT(0,15)}", pattern)
		}
		return append(to, pattern), nil
	}
	values := ints
	if pattern[m[2]:m[3]] == "DATE" {
		values = dates
	}
	all, err := values(pattern[m[4]:m[5]], pattern[m[6]:m[7]])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	for _, v := range all {
		if to, err = ranges(pattern[:m[0]]+v+pattern[m[1]:], to); err != nil {
			return nil, err
		}
		if len(to) > maxFiles {
			return nil, fmt.Errorf("%s stands for more than %d patterns", pattern, maxFiles)
		}
	}
	return to, nil
}

func ints(first, last string) (all []string, err error) {
	a, err := strconv.ParseInt(first, 10, 62)
	if err != nil {
		return nil, err
	}
	b, err := strconv.ParseInt(last, 10, 62)
	switch {
	case err != nil:
		return nil, err
	case a > b:
		return nil, fmt.Errorf("the range from %d to %d is empty", a, b)
	case b-a >= maxFiles:
		return nil, fmt.Errorf("the range from %d to %d is of more than %d numbers", a, b, maxFiles)
	}
	for ; a <= b; a++ {
		all = append(all, strconv.FormatInt(a, 10))
	}
	return all, nil
}

func dates(first, last string) (all []string, err error) {
	layout, next := "20060102", func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }
	if len(first) == 10 {
		layout, next = "2006010215", func(t time.Time) time.Time { return t.Add(time.Hour) }
	}
	a, err := time.Parse(layout, first)
	if err != nil {
		return nil, fmt.Errorf("%s is no date such as 20260131 or 2026013123", first)
	}
	b, err := time.Parse(layout, last)
	if err != nil {
		return nil, fmt.Errorf("%s is no date like %s", last, first)
	}
	if a.After(b) {
		return nil, fmt.Errorf("the range from %s to %s is empty", first, last)
	}
	for ; !a.After(b); a = next(a) {
		if len(all) == maxFiles {
			return nil, fmt.Errorf("the range from %s to %s is of more than %d dates", first, last, maxFiles)
		}
		all = append(all, a.Format(layout))
	}
	return all, nil
}

// Package layoutfilter decides which sub-models of a layout an agent takes: lines of the
// form "{regex}; {condition}" with conditions in a small, safe expression language.
package layoutfilter

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	maxLines = 256
	maxLine  = 2048
)

// Filters accept sub-models. The zero value accepts all.
type Filters struct{ all []filter }

type filter struct {
	line   string
	re     *regexp.Regexp
	groups []string // names of the capture groups that the condition can use
	index  []int    // of each in re's matches
	cond   expr
}

// variable is {x} in a pattern: a number by the name of x.
var variable = regexp.MustCompile(`\{([A-Za-z_]\w*)\}`)

// Expand writes a configured line the way agents report it: ${shard_id} and ${shard_num}
// become numbers (at least 0 and 1), and {x} in the pattern becomes (?P<x>\d+).
func Expand(line string, shardID, shardNum int) string {
	line = strings.NewReplacer("${shard_id}", strconv.Itoa(max(shardID, 0)), "${shard_num}", strconv.Itoa(max(shardNum, 1))).Replace(line)
	pattern, cond, ok := strings.Cut(line, ";")
	pattern = variable.ReplaceAllString(pattern, `(?P<$1>\d+)`)
	if !ok {
		return pattern
	}
	return pattern + ";" + cond
}

// Compile reads the layout_filters lines of an agent's configuration. Names in a
// condition are those of its pattern's groups, which hold whole numbers.
func Compile(lines []string, shardID, shardNum int) (Filters, error) {
	if len(lines) > maxLines {
		return Filters{}, fmt.Errorf("%d layout_filters: at most %d are allowed", len(lines), maxLines)
	}
	var fs Filters
	var errs []error
	for i, line := range lines {
		f, err := compile(Expand(line, shardID, shardNum))
		if err != nil {
			errs = append(errs, fmt.Errorf("layout_filters %d, %.200q: %w", i+1, line, err))
		}
		fs.all = append(fs.all, f)
	}
	if err := errors.Join(errs...); err != nil {
		return Filters{}, err
	}
	return fs, nil
}

func compile(line string) (filter, error) {
	if len(line) > maxLine {
		return filter{}, fmt.Errorf("it is %d bytes long, at most %d are allowed", len(line), maxLine)
	}
	pattern, cond, ok := strings.Cut(line, ";")
	if !ok {
		return filter{}, errors.New("there is no semicolon: write {pattern}; {condition}, such as entry; True")
	}
	pattern = strings.TrimSpace(pattern)
	if _, err := regexp.Compile(pattern); err != nil { // as it stands, or it could close the group below
		return filter{}, err
	}
	re, err := regexp.Compile(`^(?:` + pattern + `)`)
	if err != nil {
		return filter{}, err
	}
	f := filter{line: line, re: re}
	for i, name := range re.SubexpNames() {
		if name != "" {
			f.groups, f.index = append(f.groups, name), append(f.index, i)
		}
	}
	f.cond, err = parse(cond, f.groups)
	return f, err
}

// Lines are the filters as agents report them.
func (fs Filters) Lines() []string {
	out := make([]string, len(fs.all))
	for i, f := range fs.all {
		out[i] = f.line
	}
	return out
}

// Accept says whether the agent takes the sub-model. A pattern matches at the start of
// the name, so "entry" also takes entry_x: end it with $ to match the whole. The first
// filter that matches and whose condition holds accepts; one that matches without it
// leaves the name to those behind it. Without filters everything is accepted. A condition
// that cannot be computed (a division by zero, a number beyond 64 bits) does not hold,
// and is returned as the error even when a later filter accepts.
func (fs Filters) Accept(subModel string) (bool, error) {
	if len(fs.all) == 0 {
		return true, nil
	}
	var errs []error
	for _, f := range fs.all {
		ok, err := f.accept(subModel)
		if err != nil {
			errs = append(errs, fmt.Errorf("layout filter %q on %q: %w", f.line, subModel, err))
		}
		if ok {
			return true, errors.Join(errs...)
		}
	}
	return false, errors.Join(errs...)
}

func (f filter) accept(name string) (bool, error) {
	at := f.re.FindStringSubmatchIndex(name)
	if at == nil {
		return false, nil
	}
	vars := make([]number, len(f.groups))
	for i, group := range f.index {
		from, to := at[2*group], at[2*group+1]
		if from < 0 {
			vars[i].missing = fmt.Errorf("the group %s takes no part in the match", f.groups[i])
			continue
		}
		n, err := strconv.ParseInt(name[from:to], 10, 64)
		if err != nil {
			vars[i].missing = fmt.Errorf("the group %s is %q, no whole number of 64 bits", f.groups[i], name[from:to])
			continue
		}
		vars[i] = integer(n)
	}
	v, err := f.cond(vars)
	return err == nil && v.truth(), err
}

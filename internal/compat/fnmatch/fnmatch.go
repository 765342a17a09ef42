// Package fnmatch matches names the way Python's fnmatch.fnmatchcase does: * is any
// text, ? any character, [seq] one of a set and [!seq] one outside it. There is no escape;
// a bracket without its end stands for itself.
package fnmatch

import "slices"

// Match says whether the whole of name matches pattern, in time proportional to the
// product of their lengths.
func Match(pattern, name string) bool {
	p, s := compile([]rune(pattern)), []rune(name)
	i, j := 0, 0
	star, from := -1, 0 // the last star, and where what it stands for ends
	for j < len(s) {
		switch {
		case i < len(p) && p[i].any:
			star, from = i, j
			i++
		case i < len(p) && p[i].has(s[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i].any {
		i++
	}
	return i == len(p)
}

// Filter returns the names that match, in their order.
func Filter(names []string, pattern string) []string {
	var out []string
	for _, name := range names {
		if Match(pattern, name) {
			out = append(out, name)
		}
	}
	return out
}

// item is a star, or a set of characters.
type item struct {
	any     bool
	negated bool
	ranges  [][2]rune
}

func (it item) has(r rune) bool {
	in := slices.ContainsFunc(it.ranges, func(x [2]rune) bool { return x[0] <= r && r <= x[1] })
	return in != it.negated
}

func compile(p []rune) []item {
	var out []item
	for i := 0; i < len(p); {
		c := p[i]
		i++
		switch c {
		case '*':
			out = append(out, item{any: true})
			continue
		case '?':
			out = append(out, item{negated: true})
			continue
		case '[':
			end := i
			if end < len(p) && p[end] == '!' {
				end++
			}
			if end < len(p) && p[end] == ']' { // first in a set it is a member
				end++
			}
			for end < len(p) && p[end] != ']' {
				end++
			}
			if end < len(p) {
				out = append(out, set(p[i:end]))
				i = end + 1
				continue
			}
		}
		out = append(out, item{ranges: [][2]rune{{c, c}}})
	}
	return out
}

// set reads what stands between brackets.
func set(p []rune) item {
	var it item
	if len(p) > 0 && p[0] == '!' {
		it.negated = true
		p = p[1:]
	}
	// Ranges lie between chunks: from the last of one to the first of the next.
	var chunks [][]rune
	for k := 1; ; k += 2 {
		dash := -1
		if k < len(p) {
			dash = slices.Index(p[k:], '-')
		}
		if dash < 0 {
			break
		}
		k += dash
		chunks = append(chunks, slices.Clone(p[:k]))
		p, k = p[k+1:], 0
	}
	switch {
	case len(p) > 0 || len(chunks) == 0:
		chunks = append(chunks, slices.Clone(p))
	default: // a dash at the end stands for itself
		chunks[len(chunks)-1] = append(chunks[len(chunks)-1], '-')
	}
	for k := len(chunks) - 1; k > 0; k-- { // a range that runs backwards is empty, and so are its ends
		before, after := chunks[k-1], chunks[k]
		if last := before[len(before)-1]; last > after[0] {
			chunks[k-1] = append(before[:len(before)-1], after[1:]...)
			chunks = slices.Delete(chunks, k, k+1)
		}
	}
	for k, chunk := range chunks {
		for _, r := range chunk {
			it.ranges = append(it.ranges, [2]rune{r, r})
		}
		if k > 0 {
			before := chunks[k-1]
			it.ranges = append(it.ranges, [2]rune{before[len(before)-1], chunk[0]})
		}
	}
	return it
}

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// count writes 1234567 as 1,234,567.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return sign + strings.Join(append([]string{s}, parts...), ",")
}

// counted is count with its noun: "1 rating", "2 ratings".
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

const unknown = "–"

// auc writes three decimals: a fourth is noise at these sample sizes.
func auc(f Figure) string {
	if !f.Known() {
		return unknown
	}
	return fmt.Sprintf("%.3f", float64(f))
}

// millis writes a latency with three significant digits or whole milliseconds.
func millis(f Figure) string {
	v := float64(f)
	switch {
	case !f.Known():
		return unknown
	case math.Abs(v) >= 99.95:
		return count(int64(math.Round(v)))
	case math.Abs(v) >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// number writes a figure shortly: whole numbers whole, others with one decimal.
func number(f Figure) string {
	v := float64(f)
	switch {
	case !f.Known():
		return unknown
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return count(int64(v))
	case math.Abs(v) >= 999.95:
		return count(int64(math.Round(v)))
	}
	return fmt.Sprintf("%.1f", v)
}

// signed is auc with its sign, for a difference.
func signed(f Figure) string {
	if !f.Known() {
		return unknown
	}
	return strings.Replace(fmt.Sprintf("%+.3f", float64(f)), "-", "−", 1)
}

// yes answers a check.
func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "NO"
}

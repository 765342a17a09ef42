package report

import (
	"fmt"
	"strings"
)

// LagPoint is what the same ratings come to when they are replayed at a lag.
type LagPoint struct {
	Lag      int    `json:"lag"` // ratings published behind the last one learnt
	Online   Figure `json:"online"`
	Baseline Figure `json:"baseline"`
}

// Mark is something that happened to the run.
type Mark struct {
	Second float64 `json:"second"`
	Text   string  `json:"text"`
}

// Recommendation is what a model server recommends one user, before and after the user's latest
// ratings.
type Recommendation struct {
	User   int64   `json:"user"`
	Rated  []Stars `json:"rated"`  // the latest ratings, latest first
	Before []Pick  `json:"before"` // by the copy frozen at half time, which has not seen them
	After  []Pick  `json:"after"`
}

// Stars is a rating as a person reads it.
type Stars struct {
	Title string  `json:"title"`
	About string  `json:"about"` // year and genres
	Stars float64 `json:"stars"`
	Liked bool    `json:"liked"`
}

// Pick is a recommended movie.
type Pick struct {
	Title string `json:"title"`
	About string `json:"about"`
	Score Figure `json:"score"` // chance that the user likes it
	// Was is its place before the ratings, from 1. What moved it, in log-odds: what the model has
	// learnt since, at the history of before, and then the latest ratings in the history.
	Was     int    `json:"was,omitempty"`
	Learnt  Figure `json:"learnt"`
	History Figure `json:"history"`
}

// moved says where a pick of after comes from.
func (p Pick) moved() string {
	if p.Was == 0 {
		return ""
	}
	return fmt.Sprintf("was %s; learning %s, latest ratings %s", ordinal(p.Was), odds(p.Learnt), odds(p.History))
}

func odds(f Figure) string {
	if !f.Known() {
		return unknown
	}
	return strings.Replace(fmt.Sprintf("%+.2f", float64(f)), "-", "−", 1)
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return count(int64(n)) + suffix
}

// baselines is whether the run was compared with biases; reports of before were not.
func (r *Report) baselines() bool { return r.AUCBaseline.Known() && r.AUCBaseline != 0 }

// lag says how far the model was behind.
func (r *Report) lag() string {
	if !r.Lag.P50.Known() {
		return ""
	}
	return fmt.Sprintf("%s behind (p90 %s)", counted(int64(r.Lag.P50), "rating"), number(r.Lag.P90))
}

// textRecommendations is the part of the page for a terminal.
func (r *Report) textRecommendations() string {
	var b strings.Builder
	for _, u := range r.Recommendations {
		fmt.Fprintf(&b, "\nRECOMMENDED TO USER %d, who rated last\n", u.User)
		for _, s := range u.Rated {
			fmt.Fprintf(&b, "  %.1f  %s\n", s.Stars, within(s.Title+", "+s.About, 72))
		}
		fmt.Fprintf(&b, "  before, by the copy of half time      now, and what moved it in log-odds\n")
		for i := range max(len(u.Before), len(u.After)) {
			before, after := "", ""
			if i < len(u.Before) {
				before = within(u.Before[i].Title, 29)
				before = fmt.Sprintf("%2d %.2f %s", i+1, float64(u.Before[i].Score), before)
			}
			if i < len(u.After) {
				p := u.After[i]
				after = fmt.Sprintf("%.2f %s", float64(p.Score), within(p.Title, 23))
				if p.Was > 0 {
					after = fmt.Sprintf("%-28s %s %s", after, odds(p.Learnt), odds(p.History))
				}
			}
			fmt.Fprintf(&b, "  %s%s %s\n", before, strings.Repeat(" ", max(0, 37-len([]rune(before)))), after)
		}
		b.WriteString("  (two numbers: what was learnt since half time, and the latest ratings)\n")
	}
	return b.String()
}

// within cuts a text to n characters.
func within(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// grouped adds up counts whose names differ in ids alone: quoted texts and numbers.
func grouped(m map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for name, n := range m {
		out[withoutIDs(name)] += n
	}
	return out
}

// withoutIDs puts … for each quoted text and each number that is none of a few words' own, such
// as the 4 of "3 fields, not 4".
func withoutIDs(s string) string {
	var b strings.Builder
	rs := []rune(s)
	for i := 0; i < len(rs); {
		end := i + 1
		switch {
		case rs[i] == '"':
			for end < len(rs) && rs[end] != '"' {
				if rs[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(rs))
			b.WriteRune('…')
		case isDigit(rs[i]) && (i == 0 || !isWord(rs[i-1])):
			for end < len(rs) && (isWord(rs[end]) || rs[end] == '.' && end+1 < len(rs) && isDigit(rs[end+1])) {
				end++
			}
			if number := string(rs[i:end]); len(number) < 2 {
				b.WriteString(number)
			} else {
				b.WriteRune('…')
			}
		default:
			b.WriteRune(rs[i])
		}
		i = end
	}
	return b.String()
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }

func isWord(r rune) bool {
	return isDigit(r) || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '^'
}

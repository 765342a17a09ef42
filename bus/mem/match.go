package mem

import "strings"

// match says whether the filter, with NATS wildcards, takes the subject.
func match(filter, subject string) bool {
	for {
		f, fr, fmore := strings.Cut(filter, ".")
		s, sr, smore := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case f != "*" && f != s:
			return false
		case !fmore || !smore:
			return fmore == smore
		}
		filter, subject = fr, sr
	}
}

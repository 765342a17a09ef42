package wire

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
)

// Shares of the dead-letter stream. What exceeds one is counted in a summary, so that
// neither a broken producer nor another namespace takes the room of everybody's letters.
const (
	sourceShare    = 8       // a source has an eighth of the stream's bytes,
	namespaceShare = 2       // a namespace half,
	maxLetters     = 100_000 // and a source this many letters: nobody reads more
)

// LetterCost is what a message of the dead letters takes, by subject and body, its
// headers included.
func LetterCost(subject string, body int) int64 { return int64(2*len(subject) + body + 128) }

// ShareOf is whose share a stream's letters take: kafka:<topic> for all its partitions,
// csv:<file>, and the kind of other streams.
func ShareOf(stream string) string {
	if topic, ok := strings.CutPrefix(stream, "kafka:"); ok {
		if i := strings.LastIndexByte(topic, '/'); i >= 0 {
			topic = topic[:i]
		}
		return "kafka:" + topic
	}
	return summaryStream(stream)
}

// Usage is what the letters of one namespace take, by source.
type Usage struct {
	bytes   int64
	sources map[string]*sourceUsage
}

type sourceUsage struct{ bytes, letters int64 }

// Add counts one letter more, or, with a negative cost, one less.
func (u *Usage) Add(source string, cost int64) {
	if u.sources == nil {
		u.sources = map[string]*sourceUsage{}
	}
	s := u.sources[source]
	if s == nil {
		s = &sourceUsage{}
		u.sources[source] = s
	}
	u.bytes += cost
	s.bytes += cost
	if cost > 0 {
		s.letters++
	} else {
		s.letters--
	}
}

// Fits says whether a letter of the source has room in a stream of limit bytes; 0 and -1
// are none. The error is a bus.ErrFull that says which share it exceeds.
func (u *Usage) Fits(source string, cost, limit int64) error {
	var have sourceUsage
	if s := u.sources[source]; s != nil {
		have = *s
	}
	switch {
	case have.letters >= maxLetters:
		return fmt.Errorf("%w: %s has %d letters, its share", bus.ErrFull, source, have.letters)
	case limit > 0 && have.bytes+cost > limit/sourceShare:
		return fmt.Errorf("%w: the letters of %s take %d bytes, its share is %d", bus.ErrFull, source, have.bytes, limit/sourceShare)
	case limit > 0 && u.bytes+cost > limit/namespaceShare:
		return fmt.Errorf("%w: the letters of the namespace take %d bytes, its share is %d", bus.ErrFull, u.bytes, limit/namespaceShare)
	}
	return nil
}

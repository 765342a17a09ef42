package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
)

// What is remembered besides the letters, one message a subject in a small stream of its
// own: the letters' may be full.
const (
	NoteStream = "MONOLITH_DLQ_NOTES"
	NoteRoot   = "mdlqnote"
)

// PlaceSubject is where a reaction's place in the log stands.
func PlaceSubject(bzid, reaction string) string {
	return NoteRoot + "." + events.Escape(bzid) + ".settled." + events.Escape(reaction)
}

// SummarySubject is where the summary stands that counts p.
func SummarySubject(bzid string, p bus.Parked) string {
	return SummaryRoot(bzid) + "." + events.Escape(cut(p.By)) + "." + events.Escape(cut(summaryStream(p.Stream)))
}

// SummaryRoot is what the subjects of a namespace's summaries begin with.
func SummaryRoot(bzid string) string { return NoteRoot + "." + events.Escape(bzid) + ".more" }

// summaryStream is the stream, or the kind of it where there are as many streams as
// clients please: a summary each would be without bound.
func summaryStream(stream string) string {
	kind, _, named := strings.Cut(stream, ":")
	if !named || kind == "kafka" || kind == "csv" {
		return stream
	}
	return kind
}

// Summary counts letters of one owner and stream that had no room. Its fields are the
// newest one's.
type Summary struct {
	Count     uint64    `json:"count"`
	Since     time.Time `json:"since"`
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	By        string    `json:"by"`
	Stream    string    `json:"stream"`
	StreamSeq uint64    `json:"stream_seq"`
	Subject   string    `json:"subject"`
}

// maxText bounds each text of a summary, in bytes.
const maxText = 300

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// Counts says whether p is counted already: owners park in the order of the stream.
func (s Summary) Counts(p bus.Parked) bool { return s.Count > 0 && p.StreamSeq <= s.StreamSeq }

// With returns the summary with p counted in it.
func (s Summary) With(p bus.Parked, now time.Time) Summary {
	if s.Count == 0 {
		s.Since = now.UTC()
	}
	return Summary{Count: s.Count + 1, Since: s.Since, Time: now.UTC(), Reason: cut(p.Reason), By: cut(p.By),
		Stream: cut(p.Stream), StreamSeq: p.StreamSeq, Subject: cut(p.Subject)}
}

// Encode is the summary's bytes.
func (s Summary) Encode() ([]byte, error) { return json.Marshal(s) }

// DecodeSummary reads them back.
func DecodeSummary(data []byte) (s Summary, err error) {
	if err = json.Unmarshal(data, &s); err != nil {
		err = fmt.Errorf("summary of dead letters: %w: %w", events.ErrMalformed, err)
	}
	return s, err
}

// Parked is the summary as it is listed.
func (s Summary) Parked() bus.Parked {
	return bus.Parked{
		Time: s.Time, By: s.By, Stream: s.Stream, StreamSeq: s.StreamSeq, Subject: s.Subject,
		Reason: fmt.Sprintf("%d more refused since %s had no room; the newest: %s", s.Count, s.Since.Format(time.RFC3339), s.Reason),
		More:   &bus.More{Count: s.Count, Since: s.Since},
	}
}

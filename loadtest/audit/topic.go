package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/loadtest/rating"
)

func itoa(i int) string { return strconv.Itoa(i) }

// MaxRatings bounds what a report reads back into memory.
const MaxRatings = 20_000_000

// Topic is the training topic read whole.
type Topic struct {
	Records []kafka.Record // by partition and offset
	First   map[int32]int64
	Ends    map[int32]int64 // offset behind the last record, committed or aborted
}

// ReadTopic reads a topic of at most limit records into memory.
func ReadTopic(ctx context.Context, access *kafka.Access, brokers []string, topic string, limit int) (*Topic, error) {
	t := &Topic{}
	var err error
	t.First, t.Ends, err = access.Scan(ctx, brokers, topic, func(r kafka.Record) error {
		if len(t.Records) == limit {
			return fmt.Errorf("it holds more than %d records; raise the limit", limit)
		}
		t.Records = append(t.Records, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Until is the topic as it was when its partitions ended at ends, and how many records
// came later; without ends it is all of it.
func (t *Topic) Until(ends map[int32]int64) (then *Topic, later int) {
	if len(ends) == 0 {
		return t, 0
	}
	then = &Topic{First: t.First, Ends: ends}
	for _, r := range t.Records {
		if r.Offset < ends[r.Partition] {
			then.Records = append(then.Records, r)
		} else {
			later++
		}
	}
	return then, later
}

// Rated lists the records that are ratings for Freshness; the FIDs are those of the
// user's and the movie's slot. acks may be nil.
func (t *Topic) Rated(userSlot, movieSlot uint32, acks Acks) []Rated {
	var out []Rated
	for _, rec := range t.Records {
		r, err := rating.Decode(rec.Value)
		if err != nil {
			continue // parked by the trainer
		}
		out = append(out, Rated{
			Partition: rec.Partition, Offset: rec.Offset, Time: rec.Time, Acked: acks.At(rec.Partition, rec.Offset),
			FIDs: []int64{modelspec.FID(userSlot, r.User), modelspec.FID(movieSlot, r.Movie)},
		})
	}
	return out
}

// Acks are when the writer of each record heard that it is on disk: partition -> offset
// -> Unix microseconds. No log holds that, so the run keeps them beside its report.
type Acks map[int32]map[int64]int64

// Add notes an ack.
func (a Acks) Add(partition int32, offset int64, at time.Time) {
	if a[partition] == nil {
		a[partition] = map[int64]int64{}
	}
	a[partition][offset] = at.UnixMicro()
}

// At is the time of an ack to the microsecond, zero when it is not known.
func (a Acks) At(partition int32, offset int64) time.Time {
	us, ok := a[partition][offset]
	if !ok {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// AckFile is the name of the acks in a report's folder.
const AckFile = "acks.csv"

const ackHeader = "partition,offset,acked_us"

// Encode writes a as CSV.
func (a Acks) Encode(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, ackHeader)
	for _, p := range sortedKeys(a) {
		for _, o := range sortedKeys(a[p]) {
			fmt.Fprintf(b, "%d,%d,%d\n", p, o, a[p][o])
		}
	}
	return b.Flush() // keeps the first error
}

// DecodeAcks reads what Encode wrote.
func DecodeAcks(r io.Reader) (Acks, error) {
	s := bufio.NewScanner(r)
	if !s.Scan() || s.Text() != ackHeader {
		return nil, errors.Join(fmt.Errorf("the acks begin with %.40q, not %q", s.Text(), ackHeader), s.Err())
	}
	a := Acks{}
	for line := 2; s.Scan(); line++ {
		fields := strings.Split(s.Text(), ",")
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d of the acks has %d fields, not 3", line, len(fields))
		}
		p, err1 := strconv.ParseInt(fields[0], 10, 32)
		o, err2 := strconv.ParseInt(fields[1], 10, 64)
		us, err3 := strconv.ParseInt(fields[2], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("line %d of the acks: %w", line, err)
		}
		a.Add(int32(p), o, time.UnixMicro(us))
	}
	return a, s.Err()
}

// Scores are the predictions found on the impressions topic.
type Scores struct {
	answers   impression.Joiner // by model
	byPair    map[pair]float64
	Malformed int // records that are no impressions
}

type pair struct {
	model       string
	user, movie int64
}

// Add notes one impression; the first of several of the same row stands. A shadow answered nobody.
func (s *Scores) Add(i *impression.Impression) {
	if i.Shadow {
		return
	}
	if s.byPair == nil {
		s.byPair = map[pair]float64{}
	}
	s.answers.Add(impression.Of{Model: i.Model}, i)
	user, movie := i.Inputs["user"], i.Inputs["movie"]
	if len(user) != 1 || len(movie) != 1 { // another model's: it is asked for by request alone
		return
	}
	p := pair{i.Model, user[0], movie[0]}
	if _, again := s.byPair[p]; !again {
		s.byPair[p] = float64(i.Score)
	}
}

// ReadScores reads the impressions topic.
func ReadScores(ctx context.Context, access *kafka.Access, brokers []string, topic string) (*Scores, error) {
	s := &Scores{}
	_, _, err := access.Scan(ctx, brokers, topic, func(r kafka.Record) error {
		i, err := impression.Decode(r.Value)
		if err != nil {
			s.Malformed++
			return nil
		}
		s.Add(i)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

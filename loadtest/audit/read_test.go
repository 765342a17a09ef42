package audit

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/loadtest/rating"
)

func TestReadTopics(t *testing.T) {
	b, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Topics: map[string]int32{topic: 3, "predictions": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	brokers := []string{b.Addr()}
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: brokers})
	defer w.Close()
	var recs []kafka.Record
	for i := range 100 {
		r := rating.Rating{User: int64(i % 9), Movie: int64(i), Rating: 4, Timestamp: 1}
		recs = append(recs, kafka.Record{Topic: topic, Partition: -1, Key: strconv.AppendInt(nil, r.User, 10), Value: r.AppendJSON(nil)})
	}
	recs = append(recs, kafka.Record{Topic: topic, Partition: 2, Value: []byte("no rating")})
	imp, err := impression.Encode(&impression.Impression{RequestID: "r", Row: 2, Model: model, Inputs: map[string]impression.IDs{"user": {3}, "movie": {4}}, Score: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	again, err := impression.Encode(&impression.Impression{RequestID: "r", Row: 2, Model: model, Inputs: map[string]impression.IDs{"user": {3}, "movie": {4}}, Score: 0.75})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range [][]byte{imp, again, []byte("{")} {
		recs = append(recs, kafka.Record{Topic: "predictions", Value: v})
	}
	stored, err := w.Write(t.Context(), recs...)
	if err != nil {
		t.Fatal(err)
	}

	got, err := ReadTopic(t.Context(), kafka.Plain, brokers, topic, 101)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Records) != 101 || got.Ends[0]+got.Ends[1]+got.Ends[2] != 101 || got.First[1] != 0 {
		t.Errorf("%d records, first %v, ends %v", len(got.Records), got.First, got.Ends)
	}
	acks := Acks{}
	acks.Add(stored[0].Partition, stored[0].Offset, ms(5))
	rated := got.Rated(1, 2, acks)
	if len(rated) != 100 {
		t.Errorf("%d ratings of 100", len(rated))
	}
	known := 0
	for _, r := range rated {
		if !r.Acked.IsZero() {
			known++
			if r.Partition != stored[0].Partition || r.Offset != stored[0].Offset || !r.Acked.Equal(ms(5)) {
				t.Errorf("ack of another record: %+v", r)
			}
		}
		if len(r.FIDs) != 2 || r.FIDs[0]>>48 != 1 || r.FIDs[1]>>48 != 2 {
			t.Errorf("feature ids %v", r.FIDs)
		}
	}
	if known != 1 {
		t.Errorf("%d records with an ack, want 1", known)
	}
	if _, err := ReadTopic(t.Context(), kafka.Plain, brokers, topic, 100); err == nil || !strings.Contains(err.Error(), "more than 100") {
		t.Errorf("a limit that was passed: %v", err)
	}
	if _, err := ReadTopic(t.Context(), kafka.Plain, brokers, "nowhere", 100); err == nil {
		t.Error("a topic that does not exist was read")
	}

	s, err := ReadScores(t.Context(), kafka.Plain, brokers, "predictions")
	if err != nil {
		t.Fatal(err)
	}
	asked, _ := s.answers.Answer(impression.Of{Model: model}, impression.Key{RequestID: "r", Row: 2})
	s.Add(&impression.Impression{RequestID: "shadow", Model: model, Shadow: true})
	if _, counted := s.answers.Answer(impression.Of{Model: model}, impression.Key{RequestID: "shadow"}); counted {
		t.Error("a shadow counts as an answer")
	}
	if s.Malformed != 1 || asked.Score != 0.25 || s.byPair[pair{model, 3, 4}] != 0.25 {
		t.Errorf("%+v", s)
	}
}

func TestAcksRoundTrip(t *testing.T) {
	a := Acks{}
	a.Add(1, 7, ms(1))
	a.Add(0, 1<<40, ms(2).Add(999*time.Nanosecond))
	a.Add(1, 3, ms(3))
	var b bytes.Buffer
	if err := a.Encode(&b); err != nil {
		t.Fatal(err)
	}
	back, err := DecodeAcks(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, back); diff != "" {
		t.Error(diff)
	}
	if !back.At(0, 1<<40).Equal(ms(2)) || !back.At(0, 2).IsZero() || !Acks(nil).At(0, 0).IsZero() {
		t.Error("times are not those added, to the microsecond")
	}
}

func FuzzDecodeAcks(f *testing.F) {
	f.Add([]byte(ackHeader + "\n0,1,2\n3,4,5\n"))
	f.Add([]byte(ackHeader))
	f.Add([]byte("x\n"))
	f.Add([]byte(ackHeader + "\n0,1\n"))
	f.Add([]byte(ackHeader + "\n99999999999,1,1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeAcks(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := a.Encode(&b); err != nil {
			t.Fatal(err)
		}
		back, err := DecodeAcks(&b)
		if err != nil || cmp.Diff(a, back) != "" {
			t.Fatalf("%v came back as %v, %v", a, back, err)
		}
	})
}

func TestReadDeltasFencesAndStartsBehindWhatIsGone(t *testing.T) {
	b := mem.New()
	defer b.Close()
	publish := func(job string, k int, dense bool, epoch uint64, from int64) {
		t.Helper()
		data, err := proto.Marshal(&delta.Delta{Shard: uint32(k), Epoch: epoch, Ranges: []*delta.Range{{From: from, To: from + 1}}})
		if err != nil {
			t.Fatal(err)
		}
		subject := bus.DeltaSubject(bzid, job, strconv.Itoa(k))
		if dense {
			subject += ".dense"
		}
		if _, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: subject, ID: fmt.Sprint(job, k, dense, epoch, from), Expect: bus.Any, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	publish("job", 0, false, 1, 0) // 1
	publish("job", 1, false, 1, 0) // 2
	publish("job", 0, false, 2, 0) // 3: a successor of shard 0
	publish("job", 0, false, 1, 1) // 4: the fenced writer
	publish("else", 0, false, 9, 0)
	publish("job", 0, true, 1, 0)  // 6: fenced by its own subject only
	publish("job", 1, false, 1, 1) // 7
	seqs := func(ds []Delta) (out []uint64) {
		for _, d := range ds {
			out = append(out, d.Seq)
		}
		return out
	}
	got, err := ReadDeltas(t.Context(), b.Deltas(), bzid, "job", 0)
	if err != nil || got.First != 1 || got.Missing != 0 {
		t.Fatal(got.First, got.Missing, err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 6, 7}, seqs(got.All)); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
	if !got.All[3].Dense || got.All[2].Dense {
		t.Error("dense and row subjects are confused")
	}
	part, err := ReadDeltas(t.Context(), b.Deltas(), bzid, "job", 3)
	if err != nil || len(part.All) != 3 {
		t.Errorf("up to 3: %v, %v", seqs(part.All), err)
	}
	for gone, want := range map[uint64]uint64{3: 1, 5: 1, 7: 1, 99: 0} { // of this job, of another one, the last, none
		holed, err := ReadDeltas(t.Context(), hole{b.Deltas(), gone}, bzid, "job", 0)
		if err != nil || holed.Missing != want {
			t.Errorf("without %d: %d are said to be missing, %v", gone, holed.Missing, err)
		}
	}
	trimmer := b.Deltas().(interface {
		Trim(ctx context.Context, before uint64) error
	})
	if err := trimmer.Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	got, err = ReadDeltas(t.Context(), b.Deltas(), bzid, "job", 0)
	if diff := cmp.Diff([]uint64{3, 6, 7}, seqs(got.All)); err != nil || got.First != 3 || got.Missing != 0 || diff != "" {
		t.Errorf("trimmed: first %d, missing %d, %v, %v", got.First, got.Missing, seqs(got.All), err)
	}
	if _, err := b.Deltas().Publish(t.Context(), bus.DeltaDraft{Subject: bus.DeltaSubject(bzid, "job", "0"), ID: "x", Expect: bus.Any, Data: []byte{0xff}}); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadDeltas(t.Context(), b.Deltas(), bzid, "job", 0); err == nil || !strings.Contains(err.Error(), "does not decode") {
		t.Errorf("a delta that is none: %v", err)
	}
}

// hole is a stream whose disk has lost one delta.
type hole struct {
	bus.Deltas
	gone uint64
}

func (h hole) Follow(ctx context.Context, from, until uint64, subjects []string, handle func(bus.StoredDelta) error) error {
	return h.Deltas.Follow(ctx, from, until, subjects, func(d bus.StoredDelta) error {
		if d.Seq == h.gone {
			return nil
		}
		return handle(d)
	})
}

// TestReasonsOfOneKindAreCountedTogether names a kind by its first letter, and bounds how
// many kinds there are.
func TestReasonsOfOneKindAreCountedTogether(t *testing.T) {
	b := mem.New()
	defer b.Close()
	n := uint64(0)
	park := func(stream, reason string) {
		t.Helper()
		n++
		if _, err := b.DeadLetters().Park(t.Context(), bus.Parked{Reason: reason, By: "demo", Stream: stream, StreamSeq: n, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		park("csv:ratings.csv", fmt.Sprintf("userId %d is not within 0 and 2^48-1", int64(1)<<53+int64(i)))
		park("kafka:ratings/1", fmt.Sprintf(`"user %d\" x" is no number -%d.5e3`, i, i))
	}
	park("kafka:other/1", "unexpected EOF")
	got, err := CountRejected(t.Context(), b.DeadLetters(), "ratings", 0)
	want := Rejected{Last: 1001, CSV: 500, Kafka: 500, ByReason: map[string]int64{
		"userId 9007199254740992 is not within 0 and 2^48-1": 500, `"user 0\" x" is no number -0.5e3`: 500, "unexpected EOF": 1}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if part, err := CountRejected(t.Context(), b.DeadLetters(), "ratings", 100); err != nil || part.CSV != 50 || part.Kafka != 50 || part.Last != 100 {
		t.Errorf("up to 100: %+v, %v", part, err)
	}
	for i := range 100 {
		park("csv:ratings.csv", "rule "+strings.Repeat("x", i))
	}
	got, err = CountRejected(t.Context(), b.DeadLetters(), "ratings", 0)
	if err != nil || len(got.ByReason) != maxKinds+1 || got.ByReason[otherReasons] != 3+100-maxKinds {
		t.Errorf("%d kinds, %d others, %v", len(got.ByReason), got.ByReason[otherReasons], err)
	}
}

func TestHistoryOfReplicas(t *testing.T) {
	w := &world{t: t, bus: mem.New()}
	defer w.bus.Close()
	x := &replica.Replica{ModelName: model, ServerType: "ps", Task: 1, Replica: 0, Container: "c7", Stat: replica.State_AVAILABLE}
	change := func(s replica.State) {
		w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_StateChanged{StateChanged: &replica.StateChanged{Stat: s}}})
	}
	w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: x}}}) // 1: lives
	change(replica.State_AVAILABLE)                                                                                            // 2: still
	change(replica.State_UNLOADING)                                                                                            // 3: ends
	change(replica.State_AVAILABLE)                                                                                            // 4: lives
	w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "no heartbeat"}}})       // 5: ends
	w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_Lost{Lost: &replica.Lost{Reason: "no heartbeat"}}})       // 6
	moved := proto.Clone(x).(*replica.Replica)
	moved.Container = "c8"
	w.append("replica", x.Key(), &replica.Event{Body: &replica.Event_Registered{Registered: &replica.Registered{Replica: moved}}}) // 7: elsewhere
	if _, err := w.bus.Publish(t.Context(), "monolith.t.replica.x", nil, []byte(`{"registered":`)); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory(t.Context(), w.bus.Log(), bzid, job, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := func(seq uint64) time.Time {
		r, err := w.bus.Log().Get(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		return r.Time
	}
	want := []Lifetime{{model, "ps_1", "c7", at(1), at(3)}, {model, "ps_1", "c7", at(4), at(5)}, {model, "ps_1", "c8", at(7), time.Time{}}}
	if diff := cmp.Diff(want, h.Lifetimes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"registered": 2, "stateChanged": 3, "lost": 2, "(malformed)": 1}, h.Events); diff != "" {
		t.Error(diff)
	}
}

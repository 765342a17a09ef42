package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

func TestTopicNames(t *testing.T) {
	for r := range rune(300) {
		want := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
		if err := ValidTopic("a" + string(r)); (err == nil) != want {
			t.Errorf("with %q: %v", r, err)
		}
	}
	for name, want := range map[string]bool{"": false, ".": false, "..": false, "...": true, "a": true, strings.Repeat("a", 249): true, strings.Repeat("a", 250): false} {
		if err := ValidTopic(name); (err == nil) != want {
			t.Errorf("%.10q of %d: %v", name, len(name), err)
		}
	}
	if a, b := TopicOf(DefaultNamespace, "x"), TopicOf("other", "x"); a != "x" || b != "other.x" {
		t.Errorf("topics %s and %s", a, b)
	}
	for folder, want := range map[string]struct {
		topic     string
		partition int
	}{"a-0": {"a", 0}, "a-b-12": {"a-b", 12}, "a%2Fb-3": {"a/b", 3}, "a%-4": {"a%", 4}, "a-x": {"a", 1 << 30}, "a": {"", 1 << 30}, "-5": {"", 5}} {
		if topic, p := topicOf(folder), partitionOf(folder); topic != want.topic || p != want.partition {
			t.Errorf("folder %q is partition %d of %q, want %d of %q", folder, p, topic, want.partition, want.topic)
		}
	}
}

// A partition may be asked once it has a leader, broker 0 too.
func TestLeadersOfATopic(t *testing.T) {
	topic := Topic{Name: "x", Partitions: []Partition{{leader: -1}, {leader: 0, LeaderEpoch: 7}, {leader: 1}}}
	for p, want := range map[int32]error{-1: errors.New("none"), 0: ErrUnavailable, 1: nil, 2: nil, 3: errors.New("none")} {
		got, err := topic.led(p)
		if (err == nil) != (want == nil) || errors.Is(err, ErrUnavailable) != (want == ErrUnavailable) || err == nil && got != topic.Partitions[p] {
			t.Errorf("partition %d: %+v, %v", p, got, err)
		}
	}
	id := [16]byte{1, 15: 9}
	if text := idText(id); idBytes(text) != id || idText([16]byte{}) != "" {
		t.Errorf("id %v is %q", id, text)
	}
	whole := idText([16]byte{1, 2, 3, 15: 9})
	for _, text := range []string{"", "no id", "AQID", strings.Repeat("B", 40), whole[:21], whole + "B", whole + "!"} {
		if idBytes(text) != ([16]byte{}) {
			t.Errorf("%q is an id", text)
		}
	}
}

// A request holds what fits of what waits, in order; what does not fit comes first in the
// next one.
func TestWhatGoesTogether(t *testing.T) {
	sized := func(bytes, records int) *piece {
		return &piece{bytes: bytes, msgs: make([]kafkago.Message, records), done: make(chan struct{})}
	}
	for name, tc := range map[string]struct {
		pieces []*piece
		want   int // in the first request
		rest   bool
	}{
		"one":                   {[]*piece{sized(1, 1)}, 1, false},
		"one that is full":      {[]*piece{sized(maxBatchBytes, 1)}, 1, false},
		"as much as fits":       {[]*piece{sized(maxBatchBytes/2, 1), sized(maxBatchBytes/2, 1)}, 2, false},
		"a byte more":           {[]*piece{sized(maxBatchBytes/2, 1), sized(maxBatchBytes/2+1, 1), sized(1, 1)}, 1, true},
		"as many as fit":        {[]*piece{sized(1, maxBatchRecords-2), sized(1, 1), sized(1, 1)}, 3, false},
		"a record more":         {[]*piece{sized(1, maxBatchRecords-2), sized(1, 1), sized(1, 2)}, 2, true},
		"small ones in between": {[]*piece{sized(1, 1), sized(maxBatchBytes, 1), sized(1, 1)}, 1, true},
	} {
		for _, linger := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := NewWriter(WriterConfig{Linger: linger})
				q := &laneQueue{in: make(chan *piece, laneBound)}
				for _, p := range tc.pieces {
					q.in <- p
				}
				group, rest := w.gather(q, nil)
				if !slices.Equal(group, tc.pieces[:tc.want]) || (rest != nil) != tc.rest || tc.rest && rest != tc.pieces[tc.want] {
					t.Errorf("%s, waiting %v: %d pieces, and another one: %v; want %d, %v", name, linger, len(group), rest != nil, tc.want, tc.rest)
				}
				if rest != nil {
					if next, _ := w.gather(q, rest); next[0] != rest {
						t.Errorf("%s, waiting %v: what did not fit is not the next", name, linger)
					}
				}
				w.Close()
				if group, rest := w.gather(q, tc.pieces[0]); group != nil || rest != tc.pieces[0] {
					t.Errorf("%s: a closed writer takes it", name)
				}
			})
		}
	}
	a, b, c := sized(1, 1), sized(1, 1), sized(1, 1)
	b.state.Store(withdrawn)
	c.state.Store(taken)
	if got := take([]*piece{a, b, c}); !slices.Equal(got, []*piece{a, c}) || a.state.Load() != taken {
		t.Errorf("%d of three pieces are sent", len(got))
	}
}

// A record's size is that of its parts, and the greatest is sent.
func TestSizesOfRecords(t *testing.T) {
	m, size := message(&Record{Key: []byte("key"), Value: []byte("value"), Headers: map[string]string{"b": "22", "a": "1"}})
	if size != 3+5+32+(1+2+10)+(1+1+10) || len(m.Headers) != 2 || m.Headers[0].Key != "a" {
		t.Errorf("%d bytes, headers %v", size, m.Headers)
	}
	w := NewWriter(WriterConfig{Brokers: []string{freeAddr(t)}})
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for value, large := range map[int]bool{maxBatchBytes - 32: false, maxBatchBytes - 31: true} {
		if _, err := w.Write(ctx, Record{Topic: "x", Value: make([]byte, value)}); errors.Is(err, ErrTooLarge) != large || err == nil {
			t.Errorf("a value of %d bytes: %v", value, err)
		}
	}
}

// What the broker says of a request tells whether its records are stored.
func TestOutcomesOfRequests(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want error // nil: as the broker says
	}{
		{errors.New("broken pipe"), ErrUnknown}, {kafkago.MessageSizeTooLarge, ErrTooLarge}, {kafkago.RequestTimedOut, ErrUnknown}, {kafkago.Unknown, ErrUnknown},
		{kafkago.NotEnoughReplicasAfterAppend, ErrUnknown}, {kafkago.NotLeaderForPartition, nil}, {kafkago.NotEnoughReplicas, nil},
	} {
		got := outcome(tc.err)
		if !errors.Is(got, tc.err) || errors.Is(got, ErrUnknown) != (tc.want == ErrUnknown) || errors.Is(got, ErrTooLarge) != (tc.want == ErrTooLarge) {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}

// batchOf is a record batch of the broker's format.
func batchOf(first int64, last int32, epoch uint32, attrs uint16, records int) []byte {
	b := make([]byte, batchHeader+records)
	be := binary.BigEndian
	be.PutUint64(b, uint64(first))
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], epoch)
	b[16] = 2
	be.PutUint16(b[21:], attrs)
	be.PutUint32(b[23:], uint32(last))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func TestBatchesOnDisk(t *testing.T) {
	for name, tc := range map[string]struct {
		raw  []byte
		want batch
		ok   bool
	}{
		"whole":                {batchOf(7, 2, 3, 0, 10), batch{batchHeader + 10, 7, 9, indexEntry{3, false}}, true},
		"of no records":        {batchOf(7, 0, 3, 0, 0), batch{batchHeader, 7, 7, indexEntry{3, false}}, true},
		"with another behind":  {append(batchOf(7, 2, 3, 0, 10), 1, 2, 3), batch{batchHeader + 10, 7, 9, indexEntry{3, false}}, true},
		"of a transaction":     {batchOf(1, 0, 0, attrTxn, 5), batch{batchHeader + 5, 1, 1, indexEntry{0, true}}, true},
		"the end of one":       {batchOf(1, 0, 0, attrTxn|attrControl, 5), batch{batchHeader + 5, 1, 1, indexEntry{0, false}}, true},
		"a marker":             {batchOf(1, 0, 0, attrControl, 5), batch{batchHeader + 5, 1, 1, indexEntry{0, false}}, true},
		"a byte of it missing": {batchOf(7, 2, 3, 0, 10)[:batchHeader+9], batch{}, false},
		"a header cut short":   {batchOf(7, 2, 3, 0, 0)[:batchHeader-1], batch{}, false},
		"nothing":              {nil, batch{}, false},
	} {
		got, err := readBatch(tc.raw)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
	for at := range 17 { // of what the checksum leaves out, the length and the format count
		raw := batchOf(7, 2, 3, 0, 10)
		raw[at] ^= 0x80
		if _, err := readBatch(raw); (err == nil) != (at < 8 || at >= 12 && at < 16) {
			t.Errorf("a bit of byte %d: %v", at, err)
		}
	}
	whole := batchOf(7, 0, 0, 0, 5)
	for name, tc := range map[string]struct {
		raw    []byte
		offset int64
		want   bool
	}{
		"a batch behind a byte":  {append([]byte{1}, whole...), 7, true},
		"one of a later offset":  {append([]byte{1, 2, 3}, whole...), 6, true},
		"one of before":          {append([]byte{1}, whole...), 8, false},
		"itself":                 {whole, 7, false},
		"one that is cut short":  {append([]byte{1}, whole[:len(whole)-1]...), 7, false},
		"one of no records":      {append([]byte{1}, batchOf(7, 0, 0, 0, 0)...), 7, true},
		"one that ends nowhere":  {append([]byte{1}, batchOf(7, -1, 0, 0, 5)...), 7, false},
		"zeros":                  {make([]byte, 500), 0, false},
		"too little for a batch": {make([]byte, batchHeader), 0, false},
	} {
		if got := followed(tc.raw, tc.offset); got != tc.want {
			t.Errorf("%s: records lie behind: %v", name, got)
		}
	}
}

// An answer that has bytes and no record is no answer. One whose high watermark is older than
// its records, or a new leader's that lags, is as good as any.
func TestAnswersToFetches(t *testing.T) {
	for name, tc := range map[string]struct {
		res  kmsg.FetchResponseTopicPartition
		next int64
		want error
	}{
		"nothing yet":               {kmsg.FetchResponseTopicPartition{HighWatermark: 5}, 5, nil},
		"nothing of what is":        {kmsg.FetchResponseTopicPartition{HighWatermark: 6}, 5, nil},
		"a new leader":              {kmsg.FetchResponseTopicPartition{HighWatermark: 4}, 5, nil},
		"newer than the watermark":  {kmsg.FetchResponseTopicPartition{HighWatermark: 5, RecordBatches: batchOf(5, 2, 0, 0, 0)}, 8, nil},
		"half a batch":              {kmsg.FetchResponseTopicPartition{HighWatermark: 9, RecordBatches: batchOf(5, 0, 0, 0, 5)[:30]}, 0, ErrCorrupt},
		"refused by its code":       {kmsg.FetchResponseTopicPartition{HighWatermark: 9, ErrorCode: kerr.OffsetOutOfRange.Code}, 0, kerr.OffsetOutOfRange},
		"a whole batch, then bytes": {kmsg.FetchResponseTopicPartition{HighWatermark: 9, RecordBatches: append(batchOf(5, 0, 0, 0, 0), 0, 0, 0)}, 6, nil},
	} {
		f, err := NewReader(ReaderConfig{Topic: "x"}).decode(&tc.res, 5)
		if !errors.Is(err, tc.want) || f.next != tc.next || len(f.recs) != 0 {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	for _, tc := range []struct{ given, want ReaderConfig }{
		{ReaderConfig{}, ReaderConfig{MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20}},
		{ReaderConfig{MaxWait: -1, MaxBytes: -1}, ReaderConfig{MaxWait: 500 * time.Millisecond, MaxBytes: 1 << 20}},
		{ReaderConfig{MaxWait: 1, MaxBytes: 1}, ReaderConfig{MaxWait: 1, MaxBytes: 1}},
	} {
		if r := NewReader(tc.given); r.cfg.MaxWait != tc.want.MaxWait || r.cfg.MaxBytes != tc.want.MaxBytes {
			t.Errorf("%+v: waits %v for %d bytes", tc.given, r.cfg.MaxWait, r.cfg.MaxBytes)
		}
	}
}

// A broker counts its starts, from one where nobody can tell.
func TestStartsAreCounted(t *testing.T) {
	for text, want := range map[string]int32{"": 1, "3\n": 4, " 41 ": 42, "no number": 1} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "starts"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i := range int32(2) {
			if n, err := countStart(dir); n != want+i || err != nil {
				t.Errorf("%q: start %d, %v, want %d", text, n, err, want+i)
			}
		}
	}
	if _, err := countStart(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a start in a folder that is not there is counted")
	}
}

// A topic that the cluster refuses to make is refused with its words, if it has any; one
// that somebody else makes at the same moment is there.
func TestTopicsThatAreRefused(t *testing.T) {
	b := start(t, BrokerConfig{})
	why := "five copies of two brokers"
	for name, tc := range map[string]struct {
		code *kerr.Error
		why  *string
	}{"with words": {kerr.InvalidReplicationFactor, &why}, "without": {kerr.InvalidReplicationFactor, nil}, "made by another": {kerr.TopicAlreadyExists, &why}} {
		b.cluster.ControlKey(int16(kmsg.CreateTopics), func(q kmsg.Request) (kmsg.Response, error, bool) { // for one request
			res := q.ResponseKind().(*kmsg.CreateTopicsResponse)
			for _, topic := range q.(*kmsg.CreateTopicsRequest).Topics {
				one := kmsg.NewCreateTopicsResponseTopic()
				one.Topic, one.ErrorCode, one.ErrorMessage = topic.Topic, tc.code.Code, tc.why
				res.Topics = append(res.Topics, one)
			}
			return res, nil, true
		})
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		err := Plain.EnsureTopics(ctx, []string{b.Addr()}, map[string]int32{"x": 1})
		if refused := tc.code != kerr.TopicAlreadyExists; refused != errors.Is(err, tc.code) || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if refused && strings.Contains(err.Error(), why) != (tc.why != nil) {
			t.Errorf("%s: %v, want the cluster's words", name, err)
		}
		if name == "made by another" { // the next request, which is not refused, has made it
			c := adminClient(t, []string{b.Addr()})
			req := kmsg.NewPtrDeleteTopicsRequest()
			gone := kmsg.NewDeleteTopicsRequestTopic()
			gone.Topic = kmsg.StringPtr("x")
			req.Topics, req.TopicNames = append(req.Topics, gone), []string{"x"}
			if _, err := req.RequestWith(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// An index that says what its batches say stays as it is; any other one is written anew.
func TestIndexesAreMended(t *testing.T) {
	want := []indexEntry{{epoch: 0}, {epoch: 0x01020304, inTx: true}, {epoch: 7}}
	var good []byte
	for _, e := range want {
		good = e.append(good)
	}
	if len(good) != len(want)*indexBytes {
		t.Fatalf("%d entries take %d bytes", len(want), len(good))
	}
	var said bytes.Buffer
	p := &partitionFolder{path: t.TempDir(), log: slog.New(slog.NewTextHandler(&said, nil))}
	mend := func(what string, have []byte, want []indexEntry, anew bool) {
		t.Helper()
		file := p.file(0, ".idx")
		if err := errors.Join(os.RemoveAll(file), os.WriteFile(file, have, 0o600)); err != nil {
			t.Fatal(err)
		}
		said.Reset()
		if err := p.mendIndex(0, want); err != nil {
			t.Fatal(err)
		}
		var whole []byte
		for _, e := range want {
			whole = e.append(whole)
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, whole) || (said.Len() > 0) != anew {
			t.Errorf("%s: %x, %v, want %x; the log says %q", what, got, err, whole, said.String())
		}
	}
	mend("as it is", good, want, false)
	mend("of nothing", nil, nil, false)
	mend("too short", good[:len(good)-1], want, true)
	mend("an entry short", good[indexBytes:], want, true)
	mend("an entry more", append(bytes.Clone(good), good[:indexBytes]...), want, true)
	mend("of no batches", good, nil, true)
	for at := range good {
		bad := bytes.Clone(good)
		bad[at] ^= 1
		mend("a flipped bit", bad, want, true)
	}
	for i, e := range []indexEntry{{epoch: 1}, {epoch: 0x01020304}, {epoch: 7, inTx: true}} { // whole, and of another batch
		other := slices.Clone(want)
		other[i] = e
		mend("another batch", good, other, true)
	}
}

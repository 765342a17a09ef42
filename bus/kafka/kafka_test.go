package kafka

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// brokerEnv makes this test binary a broker to be killed: <dir> <addr>.
const brokerEnv = "MONOLITH_TEST_BROKER"

func TestMain(m *testing.M) {
	if v := os.Getenv(brokerEnv); v != "" {
		dir, addr, _ := strings.Cut(v, " ")
		b, err := StartBroker(BrokerConfig{Dir: dir, Addr: addr, Topics: map[string]int32{"ratings": 2}})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(b.Addr())
		select {}
	}
	leaks.Main(m)
}

func start(t *testing.T, cfg BrokerConfig) *Broker {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Addr == "" {
		cfg.Addr = freeAddr(t) // it may come back there
	}
	b, err := StartBroker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestEmbedded(t *testing.T) {
	b := start(t, BrokerConfig{})
	contract(t, []string{b.Addr()})
}

// contract is what every broker and both clients hold to.
func contract(t *testing.T, brokers []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait.Patience)
	defer cancel()
	c := &contractTopic{ctx: ctx, brokers: brokers, topic: fmt.Sprintf("contract-%d", time.Now().UnixNano())}
	c.ensure(t)
	c.w = NewWriter(WriterConfig{Brokers: brokers, Linger: time.Millisecond})
	defer c.w.Close()
	t.Run("empty partition", c.empty)
	t.Run("what was written is read", c.writtenIsRead)
	t.Run("order and offsets of many writers", c.manyWriters)
	t.Run("a fetch starts inside a batch", c.insideABatch)
	t.Run("a record that arrives ends the wait", c.arrivalEndsTheWait)
	t.Run("limits", c.limits)
	t.Run("a partition that is not there", c.noPartition)
	t.Run("a topic that is not there is not made by looking", func(t *testing.T) { looksCreateNothing(t, ctx, brokers) })
	t.Run("transactions", func(t *testing.T) { transactions(t, ctx, brokers) })
	t.Run("offsets of a group", c.groupOffsets)
	t.Run("a topic made anew", func(t *testing.T) { topicMadeAnew(t, ctx, brokers) })
	t.Run("retention and the end", func(t *testing.T) { retainedTail(t, ctx, brokers) })
}

// contractTopic is a topic of three partitions that the parts of the contract share, in order.
type contractTopic struct {
	ctx     context.Context
	brokers []string
	topic   string
	w       *Writer
}

// ensure makes the topic, again, and with partitions more and fewer than there are.
func (c *contractTopic) ensure(t *testing.T) {
	if err := Plain.EnsureTopics(c.ctx, c.brokers, map[string]int32{c.topic: 3}); err != nil {
		t.Fatal(err)
	}
	if err := Plain.EnsureTopics(c.ctx, c.brokers, map[string]int32{c.topic: 3}); err != nil {
		t.Fatal("a second EnsureTopics:", err)
	}
	if err := Plain.EnsureTopics(c.ctx, c.brokers, map[string]int32{c.topic: 4}); err == nil || !strings.Contains(err.Error(), "has 3 partitions") {
		t.Fatal("EnsureTopics with more partitions than there are:", err)
	}
	if err := Plain.EnsureTopics(c.ctx, c.brokers, map[string]int32{c.topic: 2}); err != nil {
		t.Fatal("EnsureTopics with fewer partitions than there are:", err)
	}
	if n, err := Plain.Partitions(c.ctx, c.brokers, c.topic); n != 3 || err != nil {
		t.Fatal("Partitions =", n, err)
	}
}

func (c *contractTopic) reader(t *testing.T, p int32, wait time.Duration) *Reader {
	r := NewReader(ReaderConfig{Brokers: c.brokers, Topic: c.topic, Partition: p, MaxWait: wait})
	t.Cleanup(r.Close)
	return r
}

func (c *contractTopic) empty(t *testing.T) {
	r := c.reader(t, 2, 50*time.Millisecond)
	if first, end, err := r.Bounds(c.ctx); first != 0 || end != 0 || err != nil {
		t.Fatal("Bounds =", first, end, err)
	}
	recs, _, err := r.Fetch(c.ctx, 0)
	if len(recs) != 0 || err != nil {
		t.Fatal("Fetch =", recs, err)
	}
	for _, offset := range []int64{1, -1, 1 << 40} {
		if _, _, err := r.Fetch(c.ctx, offset); !errors.Is(err, ErrOutOfRange) {
			t.Fatalf("Fetch(%d) = %v", offset, err)
		}
	}
}

func (c *contractTopic) writtenIsRead(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	in := []Record{
		{Topic: c.topic, Partition: 0, Key: []byte("k"), Value: []byte("a"), Time: at, Headers: map[string]string{"traceparent": "00-1", "z": ""}},
		{Topic: c.topic, Partition: 1, Value: []byte("b"), Time: at},
		{Topic: c.topic, Partition: 0, Value: []byte("c"), Time: at},
		{Topic: c.topic, Partition: -1, Key: []byte("user 7"), Value: []byte("d"), Time: at},
	}
	out, err := c.w.Write(c.ctx, in...)
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Offset != 0 || out[1].Offset != 0 || out[2].Offset != 1 || out[3].Partition != PartitionOf([]byte("user 7"), 3) {
		t.Fatalf("Write = %+v", out)
	}
	for _, want := range out {
		recs, _, err := c.reader(t, want.Partition, time.Second).Fetch(c.ctx, want.Offset)
		if err != nil || len(recs) == 0 {
			t.Fatal(recs, err)
		}
		got := recs[0]
		if got.Offset != want.Offset || got.Partition != want.Partition || got.Topic != c.topic ||
			!bytes.Equal(got.Value, want.Value) || !bytes.Equal(got.Key, want.Key) || !got.Time.Equal(at) ||
			got.Headers["traceparent"] != want.Headers["traceparent"] || len(got.Headers) != len(want.Headers) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	}
}

func (c *contractTopic) manyWriters(t *testing.T) {
	const writers, each = 8, 200
	type stored struct {
		value  string
		offset int64
	}
	results := make(chan []stored, writers)
	for i := range writers {
		go func() {
			var mine []stored
			defer func() { results <- mine }()
			for n := range each {
				v := fmt.Sprintf("%d/%d", i, n)
				out, err := c.w.Write(c.ctx, Record{Topic: c.topic, Partition: 1, Value: []byte(v)})
				if err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, stored{v, out[0].Offset})
			}
		}()
	}
	at := map[int64]string{}
	for range writers {
		last := int64(-1)
		for _, s := range <-results {
			if s.offset <= last {
				t.Fatalf("%s got offset %d behind %d", s.value, s.offset, last)
			}
			last, at[s.offset] = s.offset, s.value
		}
	}
	r := c.reader(t, 1, time.Second)
	all := drain(t, c.ctx, r, 0)
	found := 0
	for _, rec := range all {
		if v, ok := at[rec.Offset]; ok {
			found++
			if v != string(rec.Value) {
				t.Fatalf("offset %d holds %q, its writer was told %q", rec.Offset, rec.Value, v)
			}
		}
	}
	if found != writers*each {
		t.Fatalf("found %d of %d records", found, writers*each)
	}
}

func (c *contractTopic) insideABatch(t *testing.T) {
	var in []Record
	for i := range 100 {
		in = append(in, Record{Topic: c.topic, Partition: 0, Value: fmt.Appendf(nil, "batch %d", i)})
	}
	out, err := c.w.Write(c.ctx, in...)
	if err != nil {
		t.Fatal(err)
	}
	r := c.reader(t, 0, time.Second)
	for _, i := range []int{0, 1, 57, 99} {
		recs, _, err := r.Fetch(c.ctx, out[i].Offset)
		if err != nil || recs[0].Offset != out[i].Offset || string(recs[0].Value) != fmt.Sprintf("batch %d", i) {
			t.Fatalf("Fetch(%d) = %+v, %v", out[i].Offset, recs[:1], err)
		}
	}
}

func (c *contractTopic) arrivalEndsTheWait(t *testing.T) {
	r := c.reader(t, 2, 5*wait.Patience) // nothing else ends it
	_, end, err := r.Bounds(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		recs, _, err := r.Fetch(c.ctx, end)
		if err == nil && (len(recs) != 1 || recs[0].Offset != end) {
			err = fmt.Errorf("got %+v", recs)
		}
		got <- err
	}()
	if _, err := c.w.Write(c.ctx, Record{Topic: c.topic, Partition: 2, Value: []byte("now")}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func (c *contractTopic) limits(t *testing.T) {
	_, err := c.w.Write(c.ctx, Record{Topic: c.topic, Value: make([]byte, 2<<20)})
	if !errors.Is(err, ErrTooLarge) {
		t.Fatal("2 MiB:", err)
	}
	big := make([]Record, 5)
	for i := range big {
		big[i] = Record{Topic: c.topic, Partition: 2, Value: bytes.Repeat([]byte{byte(i)}, 500<<10)}
	}
	out, err := c.w.Write(c.ctx, big...)
	if err != nil {
		t.Fatal("five records of 500 KiB:", err)
	}
	r := NewReader(ReaderConfig{Brokers: c.brokers, Topic: c.topic, Partition: 2, MaxBytes: 1000})
	defer r.Close()
	recs, _, err := r.Fetch(c.ctx, out[0].Offset) // larger than MaxBytes, arrives all the same
	if err != nil || len(recs) == 0 || len(recs[0].Value) != 500<<10 {
		t.Fatal("a record above MaxBytes:", len(recs), err)
	}
}

func (c *contractTopic) noPartition(t *testing.T) {
	_, err := c.w.Write(c.ctx, Record{Topic: c.topic, Partition: 9, Value: []byte("x")})
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) { // none of which would be for good
		t.Fatal("partition 9 of 3:", err)
	}
}

// drain reads from offset to the end as it is now, and checks that no offset is missing.
func drain(t *testing.T, ctx context.Context, r *Reader, offset int64) []Record {
	t.Helper()
	_, end, err := r.Bounds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	for offset < end {
		recs, _, err := r.Fetch(ctx, offset)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			if rec.Offset != offset {
				t.Fatalf("offset %d came where %d was due", rec.Offset, offset)
			}
			offset++
		}
		all = append(all, recs...)
	}
	return all
}

func TestRestartKeepsAll(t *testing.T) {
	dir := t.TempDir()
	b := start(t, BrokerConfig{Dir: dir, Topics: map[string]int32{"ratings": 2}})
	addr := b.Addr()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	w := NewWriter(WriterConfig{Brokers: []string{addr}})
	defer w.Close()
	r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: "ratings", Partition: 1, MaxWait: 10 * time.Second})
	defer r.Close()
	if _, err := w.Write(ctx, Record{Topic: "ratings", Partition: 1, Value: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	if recs, _, err := r.Fetch(ctx, 0); err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	if _, err := StartBroker(BrokerConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatal("a second broker on the same folder:", err)
	}
	got := make(chan []Record, 1)
	go func() { // waits through the broker's absence
		recs, _, err := r.Fetch(ctx, 1)
		if err != nil {
			t.Error(err)
		}
		got <- recs
	}()
	b.Close()
	start(t, BrokerConfig{Dir: dir, Addr: addr, Topics: map[string]int32{"ratings": 2}})
	var out []Record
	for {
		var err error
		out, err = w.Write(ctx, Record{Topic: "ratings", Partition: 1, Value: []byte("after")})
		if err == nil {
			break
		}
		if !errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
	}
	if recs := <-got; len(recs) == 0 || recs[0].Offset != 1 || string(recs[0].Value) != "after" {
		t.Fatalf("the waiting reader got %+v", recs)
	}
	if out[0].Offset < 1 {
		t.Fatal("the log started again at", out[0].Offset)
	}
	all := drain(t, ctx, r, 0)
	if string(all[0].Value) != "before" {
		t.Fatalf("offset 0 is now %q", all[0].Value)
	}
}

// A log that lost its head or its tail must stop its reader.
func TestOutOfRangeAfterLoss(t *testing.T) {
	addr := freeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	b := start(t, BrokerConfig{Addr: addr, Topics: map[string]int32{"ratings": 1}})
	w := NewWriter(WriterConfig{Brokers: []string{addr}})
	defer w.Close()
	var in []Record
	for i := range 10 {
		in = append(in, Record{Topic: "ratings", Value: fmt.Appendf(nil, "%d", i)})
	}
	if _, err := w.Write(ctx, in...); err != nil {
		t.Fatal(err)
	}
	r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: "ratings", MaxWait: 50 * time.Millisecond})
	defer r.Close()
	if recs, _, err := r.Fetch(ctx, 10); err != nil || len(recs) != 0 {
		t.Fatal("at the end:", recs, err)
	}
	if err := rawDeleteRecords(ctx, addr, "ratings", 4); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Fetch(ctx, 3); !errors.Is(err, ErrOutOfRange) {
		t.Fatal("behind retention:", err)
	}
	if recs, _, err := r.Fetch(ctx, 4); err != nil || recs[0].Offset != 4 {
		t.Fatal("the first kept record:", recs, err)
	}
	if first, end, err := r.Bounds(ctx); first != 4 || end != 10 || err != nil {
		t.Fatal("Bounds =", first, end, err)
	}
	b.Close()
	start(t, BrokerConfig{Addr: addr, Topics: map[string]int32{"ratings": 1}}) // another, empty folder
	if _, _, err := r.Fetch(ctx, 10); !errors.Is(err, ErrTopicChanged) {
		t.Fatal("in a new log:", err)
	}
	if _, _, err := newReader(t, []string{addr}, "ratings").Fetch(ctx, 10); !errors.Is(err, ErrOutOfRange) {
		t.Fatal("behind the end of a new log:", err)
	}
}

func TestContexts(t *testing.T) {
	addr := freeAddr(t) // nobody there
	ctx, cancel := context.WithCancel(t.Context())
	r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: "ratings", Away: func(error) { cancel() }})
	defer r.Close()
	if _, _, err := r.Fetch(ctx, 0); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
		t.Error("Fetch without a broker:", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w := NewWriter(WriterConfig{Brokers: []string{addr}})
	defer w.Close()
	out, err := w.Write(ctx, Record{Topic: "ratings", Value: []byte("x")})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknown) || out[0].Offset != -1 {
		t.Error("Write without a broker, nothing was sent:", out, err)
	}
	r.Close()
	if _, _, err := r.Fetch(t.Context(), 0); !errors.Is(err, ErrClosed) {
		t.Error("Fetch after Close:", err)
	}
	w.Close()
	if _, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x")}); !errors.Is(err, ErrClosed) {
		t.Error("Write after Close:", err)
	}
}

// A broker that takes the request and dies without an answer: the outcome is unknown,
// and the writer says so instead of sending it again.
func TestUnknownOutcome(t *testing.T) {
	b := start(t, BrokerConfig{Topics: map[string]int32{"ratings": 1}})
	produced := make(chan struct{}, 8)
	b.cluster.ControlKey(0, dropProduce(b, produced))
	w := NewWriter(WriterConfig{Brokers: []string{b.Addr()}})
	defer w.Close()
	_, err := w.Write(t.Context(), Record{Topic: "ratings", Value: []byte("x")})
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) { // which would say that nothing is stored
		t.Fatal("Write =", err)
	}
	if len(produced) != 1 {
		t.Fatalf("the request was sent %d times", len(produced))
	}
}

func TestStartBrokerRefuses(t *testing.T) {
	b := start(t, BrokerConfig{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]BrokerConfig{
		"no folder":   {},
		"a file":      {Dir: file},
		"no port":     {Dir: t.TempDir(), Addr: "localhost"},
		"named port":  {Dir: t.TempDir(), Addr: "127.0.0.1:kafka"},
		"taken port":  {Dir: t.TempDir(), Addr: b.Addr()},
		"foreign net": {Dir: t.TempDir(), Addr: "192.0.2.1:0"},
	} {
		if c, err := StartBroker(cfg); err == nil {
			c.Close()
			t.Errorf("%s: started", name)
		}
	}
}

func TestPartitionOf(t *testing.T) {
	if p := PartitionOf(nil, 4); p != 0 {
		t.Error("nil key:", p)
	}
	// Pinned: a changed hash would move users to other partitions.
	got := []int32{PartitionOf([]byte("1"), 4), PartitionOf([]byte("2"), 4), PartitionOf([]byte("user 7"), 7)}
	if want := []int32{0, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// startProcess starts a broker in a process of its own, and waits until it answers.
func startProcess(t *testing.T, dir, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), brokerEnv+"="+dir+" "+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != addr {
		t.Fatal(line, err)
	}
	return cmd
}

// kill -9 at an arbitrary moment: what was acked is there, in its place, once.
func TestKill(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	acked := map[int64]string{}
	w := NewWriter(WriterConfig{Brokers: []string{addr}})
	defer w.Close()
	n := 0
	for round := range 3 {
		cmd := startProcess(t, dir, addr)
		for i := 0; ; i++ {
			if i == 100 {
				go cmd.Process.Kill() // while writes go on
			}
			v := fmt.Sprintf("%d-%d", round, n)
			n++
			recs, err := w.Write(ctx, Record{Topic: "ratings", Partition: 1, Value: []byte(v)})
			if err != nil {
				if i < 100 {
					t.Fatal(err)
				}
				break
			}
			if old, ok := acked[recs[0].Offset]; ok {
				t.Fatalf("offset %d was given to %s and %s", recs[0].Offset, old, v)
			}
			acked[recs[0].Offset] = v
		}
		cmd.Wait()
	}
	start(t, BrokerConfig{Dir: dir, Addr: addr})
	r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: "ratings", Partition: 1})
	defer r.Close()
	seen := map[string]bool{}
	for _, rec := range drain(t, ctx, r, 0) {
		v := string(rec.Value)
		if seen[v] {
			t.Fatalf("%s is stored twice", v)
		}
		seen[v] = true
		if want, ok := acked[rec.Offset]; ok && want != v {
			t.Fatalf("offset %d holds %s, acked was %s", rec.Offset, v, want)
		}
	}
	for offset, v := range acked {
		if !seen[v] {
			t.Fatalf("%s, acked at %d, is lost", v, offset)
		}
	}
	t.Logf("%d acked, %d stored", len(acked), len(seen))
}

func freeAddr(t *testing.T) string {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", port)
}

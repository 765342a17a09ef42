package kafka

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// offsets are what a group's say of a topic, asked for by a client that knows nothing of ours.
func offsets(t *testing.T, c *kgo.Client, group, topic string) map[int32]string {
	t.Helper()
	of := kmsg.NewOffsetFetchRequestTopic()
	of.Topic, of.Partitions = topic, []int32{0, 1, 2}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.Topics = group, append(req.Topics, of)
	res, err := req.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int32]string{}
	for _, of := range res.Topics {
		for _, p := range of.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				t.Fatal(err)
			}
			if p.Offset >= 0 {
				all[p.Partition] = fmt.Sprint(p.Offset, " ", p.LeaderEpoch, " ", *p.Metadata)
			}
		}
	}
	return all
}

// groupOffsets commits for a group of nobody, and is refused by one that somebody consumes in.
func (c *contractTopic) groupOffsets(t *testing.T) {
	other, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	group := c.topic + "-nobody"
	for _, at := range []int64{3, 2} { // a job may return to an earlier cut
		if err := (*Access)(nil).Commit(c.ctx, c.brokers, group, c.topic, "checkpoint 7", []Committed{{0, at, -1}, {2, 0, 0}}); err != nil {
			t.Fatal(err)
		}
		want := map[int32]string{0: fmt.Sprint(at, " -1 checkpoint 7"), 2: "0 0 checkpoint 7"}
		if got := offsets(t, other, group, c.topic); !maps.Equal(got, want) {
			t.Errorf("the group says %v, want %v", got, want)
		}
	}
	err = (*Access)(nil).Commit(c.ctx, c.brokers, group, "no-such-topic", "", []Committed{{0, 1, -1}})
	if err == nil || !strings.Contains(err.Error(), "no-such-topic") {
		t.Error("a topic that is not there:", err)
	}
	member, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.ConsumerGroup(c.topic+"-members"), kgo.ConsumeTopics(c.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	wait.Until(t, "a group with a member", func() error {
		if _, generation := member.GroupMetadata(); generation < 0 {
			return fmt.Errorf("generation %d", generation)
		}
		return nil
	})
	err = (*Access)(nil).Commit(c.ctx, c.brokers, c.topic+"-members", c.topic, "", []Committed{{0, 1, -1}})
	if err == nil || !strings.Contains(err.Error(), "--offsets-group") {
		t.Error("a group that somebody consumes in:", err)
	}
}

// TestOracleConsumerGroups has Kafka's own tool show what a group was told, and the lag that
// follows from it.
func TestOracleConsumerGroups(t *testing.T) {
	k := oracle.Kafka(t)
	tool := oracle.KafkaTool(t, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
	ctx, brokers := t.Context(), []string{k.Addr}
	if err := Plain.EnsureTopics(ctx, brokers, map[string]int32{"ratings": 2}); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(WriterConfig{Brokers: brokers, Linger: time.Millisecond})
	defer w.Close()
	for i := range 10 {
		if _, err := w.Write(ctx, Record{Topic: "ratings", Partition: int32(i % 2), Value: []byte("r")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := (*Access)(nil).Commit(ctx, brokers, "monolith-movies", "ratings", "checkpoint 1", []Committed{{0, 2, 0}, {1, 5, 0}}); err != nil {
		t.Fatal(err)
	}
	out, err := tool("--bootstrap-server", k.Addr, "--describe", "--group", "monolith-movies").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 5 && f[0] == "monolith-movies" {
			got[strings.Join(f[1:6], " ")] = true // topic, partition, committed, end, lag
		}
	}
	if want := map[string]bool{"ratings 0 2 5 3": true, "ratings 1 5 5 0": true}; !maps.Equal(got, want) {
		t.Errorf("the tool shows %v, want %v:\n%s", got, want, out)
	}
}

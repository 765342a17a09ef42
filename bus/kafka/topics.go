package kafka

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DefaultNamespace is the one whose topics carry no prefix.
const DefaultNamespace = "demo"

// TopicOf is the name of a namespace's topic where none was given: namespaces may share
// one Kafka.
func TopicOf(bzid, name string) string {
	if bzid == DefaultNamespace {
		return name
	}
	return bzid + "." + name
}

// ValidTopic says why Kafka would not take the name.
func ValidTopic(name string) error {
	legal := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
	}
	if name == "" || len(name) > 249 || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return fmt.Errorf("%q cannot be a topic: Kafka takes 1 to 249 letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

// Topic is a topic as its cluster describes it at one moment.
type Topic struct {
	Name string
	// ID is as Kafka's tools print it; a topic made anew has another. Empty: the cluster
	// is too old to give topics ids.
	ID         string
	Partitions []Partition // by number
}

// Partition is who leads a partition. Leader epochs never fall, and rise with each
// election.
type Partition struct {
	LeaderEpoch int32

	leader int32  // broker id, -1: none now
	addr   string // of the leader
}

// ErrNoTopic says that the cluster does not have the topic.
var ErrNoTopic = errors.New("no such topic")

// Describe asks for a topic. It never makes the broker create one.
func (a *Access) Describe(ctx context.Context, brokers []string, topic string) (Topic, error) {
	c, err := newClient(brokers, a)
	if err != nil {
		return Topic{}, err
	}
	defer c.Close()
	return describe(ctx, c, topic)
}

func describe(ctx context.Context, c *kgo.Client, topic string) (Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = &topic
	req.Topics = append(req.Topics, name)
	req.AllowAutoTopicCreation = false
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return Topic{}, fmt.Errorf("topic %q: %w", topic, unanswered(ctx, err))
	}
	if len(res.Topics) != 1 {
		return Topic{}, fmt.Errorf("topic %q: the broker described %d topics", topic, len(res.Topics))
	}
	t := res.Topics[0]
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return Topic{}, fmt.Errorf("%w: %q: %w", ErrNoTopic, topic, err)
	case err != nil:
		return Topic{}, fmt.Errorf("topic %q: %w", topic, err)
	}
	addrs := map[int32]string{}
	for _, b := range res.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	out := Topic{Name: topic, ID: idText(t.TopicID), Partitions: make([]Partition, len(t.Partitions))}
	slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	for i, p := range t.Partitions {
		if p.Partition != int32(i) {
			return Topic{}, fmt.Errorf("topic %q: the broker described partition %d where %d was due", topic, p.Partition, i)
		}
		addr, ok := addrs[p.Leader]
		if !ok {
			p.Leader = -1
		}
		out.Partitions[i] = Partition{LeaderEpoch: p.LeaderEpoch, leader: p.Leader, addr: addr}
	}
	return out, nil
}

func idText(id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func idBytes(text string) (id [16]byte) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// led returns partition p, once it has a leader.
func (t Topic) led(p int32) (Partition, error) {
	if p < 0 || int(p) >= len(t.Partitions) {
		return Partition{}, fmt.Errorf("topic %q has %d partitions, there is no %d", t.Name, len(t.Partitions), p)
	}
	if t.Partitions[p].leader < 0 {
		return Partition{}, fmt.Errorf("%w: partition %s/%d has no leader", ErrUnavailable, t.Name, p)
	}
	return t.Partitions[p], nil
}

// dialLeader connects to the broker that leads the partition.
func (a *Access) dialLeader(ctx context.Context, brokers []string, topic string, partition int32) (*kafkago.Conn, error) {
	t, err := a.Describe(ctx, brokers, topic)
	if err != nil {
		return nil, err
	}
	p, err := t.led(partition)
	if err != nil {
		return nil, err
	}
	c, err := a.dial(ctx, p.addr, kafkago.ConnConfig{ClientID: "monolith", Topic: topic, Partition: int(partition), Broker: int(p.leader)})
	if err != nil {
		return nil, fmt.Errorf("%w: leader of %s/%d: %w", ErrUnavailable, topic, partition, err)
	}
	return c, nil
}

// Partitions returns how many partitions topic has.
func (a *Access) Partitions(ctx context.Context, brokers []string, topic string) (int32, error) {
	t, err := a.Describe(ctx, brokers, topic)
	return int32(len(t.Partitions)), err
}

// EnsureTopics creates the topics that do not exist, with as many partitions as
// named, and returns once each has a leader. A topic may have more partitions than
// named; fewer are an error, since adding some moves keys and is a person's to decide.
func (a *Access) EnsureTopics(ctx context.Context, brokers []string, topics map[string]int32) error {
	c, err := newClient(brokers, a)
	if err != nil {
		return err
	}
	defer c.Close()
	passes := func(err error) bool { return temporary(err) || errors.Is(err, errSettling) }
	return retried(ctx, passes, func() error { return ensure(ctx, c, topics) })
}

var errSettling = errors.New("topic is being created")

func ensure(ctx context.Context, c *kgo.Client, topics map[string]int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(answerTimeout / time.Millisecond)
	for topic, want := range topics {
		t, err := describe(ctx, c, topic)
		if errors.Is(err, ErrNoTopic) {
			missing := kmsg.NewCreateTopicsRequestTopic()
			missing.Topic, missing.NumPartitions, missing.ReplicationFactor = topic, want, -1
			req.Topics = append(req.Topics, missing)
			continue
		}
		if err != nil {
			return err
		}
		if n := int32(len(t.Partitions)); n < want {
			return fmt.Errorf("topic %q has %d partitions, fewer than %d: name another topic, ask for %d, or add partitions to it", topic, n, want, n)
		}
		for p := range t.Partitions {
			if _, err := t.led(int32(p)); err != nil {
				return fmt.Errorf("%w: %w", errSettling, err)
			}
		}
	}
	if len(req.Topics) == 0 {
		return nil
	}
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("create topics: %w", unanswered(ctx, err))
	}
	for _, t := range res.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			detail := ""
			if t.ErrorMessage != nil {
				detail = *t.ErrorMessage
			}
			return fmt.Errorf("create topic %q: %w %s", t.Topic, err, detail)
		}
	}
	return errSettling // look again until every partition has a leader
}

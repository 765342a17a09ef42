package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawDeleteRecords trims partition 0, as retention would.
func rawDeleteRecords(ctx context.Context, addr, topic string, offset int64) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer c.Close()
	req := kmsg.NewDeleteRecordsRequest()
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: offset}}}}
	_, err = req.RequestWith(ctx, c)
	return err
}

// dropProduce answers produce requests by hanging up.
func dropProduce(b *Broker, seen chan<- struct{}) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		seen <- struct{}{}
		return nil, errors.New("the broker dies"), true
	}
}

package warmup

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/warmupfile"
)

// Config says how many requests are taken along, and from where.
type Config struct {
	// Requests is how many, at most warmupfile.MaxRequests. Default 0: none.
	Requests int
	// Topic is where model servers write what they answered. Default predictions, and <bzid>.predictions
	// outside of the namespace demo.
	Topic string
}

// Register binds the flags.
func (c *Config) Register(fs *pflag.FlagSet, usage string) {
	fs.IntVar(&c.Requests, "warm-up-requests", c.Requests, usage)
	fs.StringVar(&c.Topic, "predictions-topic", c.Topic, "`topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
}

// Validate complains about what no topic is looked at for.
func (c *Config) Validate() error {
	if c.Requests < 0 || c.Requests > warmupfile.MaxRequests {
		return fmt.Errorf("warm-up-requests must be 0 to %d, not %d: a model server replays no more", warmupfile.MaxRequests, c.Requests)
	}
	if c.Topic == "" {
		return nil
	}
	return kafka.ValidTopic(c.Topic)
}

// Source is where they are read; nil: none are taken along.
func (c *Config) Source(bzid string, brokers []string, access *kafka.Access) *Source {
	if c.Requests == 0 || len(brokers) == 0 {
		return nil
	}
	return &Source{Brokers: brokers, Access: access, Topic: cmp.Or(c.Topic, kafka.TopicOf(bzid, impression.Topic)), Requests: c.Requests}
}

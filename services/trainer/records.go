package trainer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/trainer/source"
	"github.com/monolith-go/monolith/services/trainer/warmup"
)

// source is where the records of this configuration come from, which Validate has accepted.
func (c *Config) source(env services.Env, log *slog.Logger) (source.Source, error) {
	switch {
	case c.Files.Stdin():
		if env.Stdin == nil {
			return nil, errors.New("trainer: monolith train alone holds a standard input to learn: name files")
		}
		return source.Stream{From: env.Stdin, Name: c.Topic}, nil
	case !c.Files.Given():
		access, err := c.Access.Access()
		if err != nil {
			return nil, fmt.Errorf("trainer: %w", err)
		}
		return source.Topic{Brokers: c.Brokers, Access: access, Name: c.Topic, Log: log}, nil
	}
	surveys := env.Surveys
	if surveys == nil {
		surveys = new(files.Surveys)
	}
	layout, _ := files.ParseLayout(c.input().Format, c.Files.Container, c.Files.Compression)
	return &source.Files{
		Patterns: c.Files.Patterns, Layout: layout, Partitions: c.Files.Partitions, Epochs: c.Files.Epochs,
		Batch: int64(c.Batch), MaxSteps: c.Files.MaxSteps, Surveys: surveys, Name: c.Topic,
	}, nil
}

// answered is where warm-up requests of exports are read; nil: exports have none.
func (c *Config) answered(bzid string) (*warmup.Source, error) {
	access, err := c.Access.Access()
	if err != nil || c.Deterministic {
		return nil, err
	}
	return c.WarmUp.Source(bzid, c.Brokers, access), nil
}

// group is the one that Kafka's tools find the job's offsets under; empty: none.
func (c *Config) group(bzid string) string {
	if c.Group == "none" {
		return ""
	}
	return cmp.Or(c.Group, kafka.TopicOf(bzid, "monolith-"+c.Job))
}

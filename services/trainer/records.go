package trainer

import (
	"log/slog"

	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/services/trainer/source"
)

// filesTopic is what facts name in place of a topic.
const filesTopic = "files"

// source is where the records of this configuration come from, which Validate has accepted.
func (c *Config) source(surveys *files.Surveys, log *slog.Logger) source.Source {
	if !c.Files.Given() {
		return source.Topic{Brokers: c.Brokers, Name: c.Topic, Log: log}
	}
	if surveys == nil {
		surveys = new(files.Surveys)
	}
	layout, _ := files.ParseLayout(c.input().Format, c.Files.Container, c.Files.Compression)
	return &source.Files{
		Patterns: c.Files.Patterns, Layout: layout, Partitions: c.Files.Partitions, Epochs: c.Files.Epochs,
		Batch: int64(c.Batch), MaxSteps: c.Files.MaxSteps, Surveys: surveys, Name: c.Topic,
	}
}

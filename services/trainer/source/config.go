package source

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/input/files"
)

// FilesConfig says which files a job learns in place of a topic.
type FilesConfig struct {
	// Patterns name them, see [files.Expand]; "-" alone is standard input, in the process that holds
	// it. Default: none, a topic is learnt.
	Patterns []string
	// Container is how records stand in them, see [files.ParseLayout]. Default auto.
	Container string
	// Compression is what they are packed with, likewise. Default auto.
	Compression string
	// Partitions is into how many they are shared, at most one for each file. Default 4.
	Partitions int
	// Epochs is how often they are learnt. Default 1.
	Epochs int
	// MaxSteps ends the job after so many steps of Batch records. Default 0: at their end.
	MaxSteps int64
}

// Given says that files are named.
func (c *FilesConfig) Given() bool { return len(c.Patterns) > 0 }

// Stdin says that standard input is named in their place.
func (c *FilesConfig) Stdin() bool { return len(c.Patterns) == 1 && c.Patterns[0] == Stdin }

// Name is what facts name in place of a topic; empty: a topic is learnt.
func (c *FilesConfig) Name() string {
	switch {
	case c.Stdin():
		return "stdin"
	case c.Given():
		return "files"
	}
	return ""
}

// Defaults sets what is left open.
func (c *FilesConfig) Defaults() {
	c.Container, c.Compression = cmp.Or(c.Container, "auto"), cmp.Or(c.Compression, "auto")
	c.Partitions, c.Epochs = cmp.Or(c.Partitions, 4), cmp.Or(c.Epochs, 1)
}

// Register adds the flags.
func (c *FilesConfig) Register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&c.Patterns, "files", c.Patterns, "`files` to learn in place of a topic, here or of HDFS, to their end: paths, globs, @lists, {DATE(a,b)} and {INT(a,b)}, with commas between them; repeatable, the same for all trainers")
	fs.StringVar(&c.Container, "container", c.Container, files.ContainerUsage)
	fs.StringVar(&c.Compression, "compression", c.Compression, files.CompressionUsage)
	fs.IntVar(&c.Partitions, "partitions", c.Partitions, "into how many the files are shared, at most one for each")
	fs.IntVar(&c.Epochs, "epochs", c.Epochs, "how often the files are learnt")
	fs.Int64Var(&c.MaxSteps, "max-steps", c.MaxSteps, "end the job after so many steps of --batch records of the files; 0: at their end")
}

const (
	maxPartitions = 1024
	maxEpochs     = 1000
)

// Validate hands each bound to check, and says what format and layout of the files do not fit.
func (c *FilesConfig) Validate(format input.Format, check func(bool, string, ...any)) error {
	check(c.Partitions > 0 && c.Partitions <= maxPartitions, "partitions must be 1 to %d, not %d", maxPartitions, c.Partitions)
	check(c.Epochs > 0 && c.Epochs <= maxEpochs, "epochs must be 1 to %d, not %d", maxEpochs, c.Epochs)
	check(c.MaxSteps >= 0, "max-steps %d is negative", c.MaxSteps)
	check(!c.Stdin() || c.Epochs == 1 && c.MaxSteps == 0, "standard input is learnt once, to its end: take epochs and max-steps away")
	if !c.Given() {
		return nil
	}
	_, err := files.ParseLayout(format, c.Container, c.Compression)
	if err != nil {
		return fmt.Errorf("trainer: %w", err)
	}
	return nil
}

// Same is what a job's start says of the files, where it was begun with flags like these.
func (c *FilesConfig) Same(b *training.FileSet) *training.FileSet {
	if !c.Given() {
		return nil
	}
	f := proto.CloneOf(b)
	if f == nil {
		f = &training.FileSet{}
	}
	f.Epochs, f.MaxSteps = uint32(c.Epochs), c.MaxSteps
	return f
}

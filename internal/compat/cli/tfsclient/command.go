// Package tfsclient is the original's tfs_client: a command that asks any TensorFlow Serving,
// over gRPC, for the states and signatures of a model, gives it another configuration, has it
// score samples from files or random ones, and measures how fast it answers.
package tfsclient

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// client is what the flags say.
type client struct {
	cmdType, conf, target, model string
	version                      int64
	signature                    string
	fields                       []string
	timeout                      time.Duration

	inputType, inputFile, fileType string
	featureList                    string
	shared                         []string
	slots                          []uint
	batch                          int
	maxID                          int64
	seed                           uint64
	framing                        instances.Framing

	senders, duration, count int
	dataDir                  string

	output        string
	exact, asJSON bool
	out           io.Writer
	rng           *rand.Rand // of the goroutine that makes inputs
}

var (
	commands = []string{"get", "status", "meta", "load", "profile"}
	outputs  = []string{"text", "pb", "pbtxt", "json", "dump"}
)

// Command is tfs-client.
func Command() *cobra.Command {
	var c client
	cmd := &cobra.Command{
		Use:   "tfs-client [status|meta|load|get|profile]",
		Short: "The original's tfs_client: ask, load and time any TensorFlow Serving",
		Long: "Asks a model server over gRPC, ours or any TensorFlow Serving. Without --input_file, get and profile\n" +
			"send random samples: tensors that the model's signature declares, or instances and batches of ids.\n" +
			"It exits with 1 where the server refuses, does not answer in time, or fails one call of profile.",
		Example: "  monolith tfs-client status --target 127.0.0.1:8500 --model_name movies:entry\n" +
			"  monolith tfs-client get --target 127.0.0.1:8500 --model_name movies --batch_size 4\n" +
			"  monolith tfs-client profile --target h1:8500,h2:8500 --model_name movies --parallel_num 8 --profile_duration 60",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.out = cmd.OutOrStdout()
			if err := c.check(args); err != nil {
				return err
			}
			return c.run(cmd.Context())
		},
	}
	c.register(cmd.Flags())
	return cmd
}

func (c *client) register(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
	})
	fs.StringVar(&c.cmdType, "cmd_type", "get", strings.Join(commands, ", ")+"; also as an argument")
	fs.StringVar(&c.conf, "conf", "", "agent.conf `file`, for the server's port and the model's name")
	fs.StringVar(&c.target, "target", "", "`host:port,...` of the servers; the first is asked, all are profiled")
	fs.StringVar(&c.model, "model_name", "", "model; with --conf: entry, dense or ps_<shard>")
	fs.Int64Var(&c.version, "model_version", 0, "its version; 0: the newest")
	fs.StringVar(&c.signature, "signature_name", tfserving.DefaultSignature, "signature of get and profile")
	fs.StringSliceVar(&c.fields, "metadata_field", []string{"signature_def"}, "fields of meta; TensorFlow Serving knows signature_def")
	fs.DurationVar(&c.timeout, "timeout", 30*time.Second, "time that each call may take")
	fs.StringVar(&c.inputType, "input_type", "", "what is sent: instance (records of them), example_batch, example_batch_to_instance, or one Instance as json, pbtext, dump or binary; empty: tensors by the signature")
	fs.StringVar(&c.inputFile, "input_file", "", "`file` of samples, or of load: a ModelServerConfig as text")
	fs.StringVar(&c.fileType, "file_type", "pb", "how an ExampleBatch is written: pb, a record of a stream, or pbtxt")
	fs.StringVar(&c.featureList, "feature_list", "", "feature_list.conf `file`, of which random batches are made")
	fs.StringSliceVar(&c.shared, "shared_feature", nil, "`names` of features that all samples of an example_batch share: those of the user")
	fs.UintSliceVar(&c.slots, "slot", nil, "`slots` of random instances; none: 1 to 6")
	fs.IntVar(&c.batch, "batch_size", 8, "samples of a request")
	fs.Int64Var(&c.maxID, "max_id", 1000, "largest number in random tensors")
	fs.Uint64Var(&c.seed, "seed", 1, "of what is drawn")
	fs.BoolVar(&c.framing.LagrangeX, "lagrangex_header", false, "records have a LagrangeX header")
	fs.BoolVar(&c.framing.SortID, "has_sort_id", false, "records have a sort id")
	fs.BoolVar(&c.framing.KafkaDump, "kafka_dump", false, "records were dumped from Kafka")
	fs.BoolVar(&c.framing.KafkaDumpPrefix, "kafka_dump_prefix", false, "records have the prefix of a Kafka dump")
	fs.IntVar(&c.senders, "parallel_num", 1, "senders of profile, each with one request at a time")
	fs.IntVar(&c.duration, "profile_duration", 600, "`seconds` that profile takes")
	fs.IntVar(&c.count, "profile_count", 0, "requests after which profile ends before that; 0: as many as there is time for")
	fs.StringVar(&c.dataDir, "profile_data_dir", "", "`folder` of example_batch records for profile; what lacks to 500 files is made")
	fs.StringVar(&c.output, "output", "text", "how an answer is written: "+strings.Join(outputs, ", "))
	fs.BoolVar(&c.exact, "compat", false, "print the original's text")
	fs.BoolVar(&c.asJSON, "json", false, "print JSON")
}

// check takes the command out of the arguments and refuses what cannot be meant.
func (c *client) check(args []string) error {
	usage := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{flags.ErrUsage}, args...)...)
	}
	if len(args) > 1 {
		return usage("tfs-client takes one command, got %q", args)
	}
	if len(args) == 1 {
		c.cmdType = args[0]
	}
	for flag, of := range map[string]struct {
		value string
		all   []string
	}{
		"cmd_type":   {c.cmdType, commands},
		"output":     {c.output, outputs},
		"file_type":  {c.fileType, []string{"pb", "pbtxt"}},
		"input_type": {c.inputType, []string{"", "instance", "example_batch", "example_batch_to_instance", "json", "pbtext", "dump", "binary"}},
	} {
		if !slices.Contains(of.all, of.value) {
			return usage("--%s %q is none of %s", flag, of.value, strings.TrimPrefix(strings.Join(of.all, ", "), ", "))
		}
	}
	switch {
	case c.exact && c.asJSON:
		return usage("--compat and --json exclude each other")
	case c.batch < 1 || c.batch > maxBatch:
		return usage("--batch_size is %d; want 1 to %d", c.batch, maxBatch)
	case c.senders < 1 || c.senders > maxSenders:
		return usage("--parallel_num is %d; want 1 to %d", c.senders, maxSenders)
	case c.duration < 1 || c.count < 0 || c.maxID < 1 || c.timeout <= 0:
		return usage("--profile_duration, --max_id and --timeout must be positive, and --profile_count not negative")
	case c.cmdType == "load" && c.inputFile == "":
		return usage("load needs --input_file with a ModelServerConfig as text")
	case c.inputFile == "" && slices.Contains([]string{"json", "pbtext", "dump", "binary"}, c.inputType):
		return usage("--input_type %s needs --input_file", c.inputType)
	case c.inputType == "" && c.inputFile != "" && c.cmdType != "load":
		return usage("say with --input_type what --input_file %s holds", c.inputFile)
	case strings.HasPrefix(c.inputType, "example_batch") && c.inputFile == "" && c.featureList == "" && c.dataDir == "":
		return usage("--input_type %s needs --input_file, or --feature_list to make batches of", c.inputType)
	case c.dataDir != "" && c.featureList == "":
		return usage("--profile_data_dir needs --feature_list to make the files that it lacks")
	}
	if c.asJSON {
		c.output = "json"
	}
	c.rng = rand.New(rand.NewPCG(c.seed, 0x746673))
	return nil
}

func (c *client) run(ctx context.Context) error {
	targets, err := c.place()
	if err != nil {
		return err
	}
	if c.model == "" && c.cmdType != "load" {
		return fmt.Errorf("%w: name the model with --model_name, or the agent's file with --conf", flags.ErrUsage)
	}
	conns, closeAll, err := dial(targets)
	if err != nil {
		return err
	}
	defer closeAll()
	switch c.cmdType {
	case "status":
		return c.status(ctx, conns[0])
	case "meta":
		return c.meta(ctx, conns[0])
	case "load":
		return c.load(ctx, conns[0])
	case "profile":
		return c.profile(ctx, conns)
	}
	return c.get(ctx, conns[0])
}

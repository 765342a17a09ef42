package jobs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
)

// FeaturesCommand is monolith features.
func FeaturesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "features FILE...",
		Short: "Print the batches of feature files that a trainer has written",
		Long: "Prints the ExampleBatch messages of files that --dump-features or monolith job dump has written, or\n" +
			"FeatureEngineeringSaveHook of Monolith in Python, as the original's text; --json prints a line for each batch.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%w: name a file, such as training/movies/features/chief_….pb", flags.ErrUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			for _, file := range files {
				if err := printFeatures(out, file, asJSON); err != nil {
					return errors.Join(out.Flush(), fmt.Errorf("%s: %w", file, err))
				}
			}
			return out.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each batch")
	return cmd
}

func printFeatures(out io.Writer, path string, asJSON bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		record, err := (instances.Framing{LagrangeX: true}).Read(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		batch := new(matrixpb.ExampleBatch)
		if err == nil {
			err = proto.Unmarshal(record, batch)
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", n, err)
		}
		var text []byte
		if asJSON {
			text, err = protojson.Marshal(batch)
		} else {
			text, err = prototext.MarshalOptions{Multiline: true}.Marshal(batch)
		}
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text)
		}
		if err != nil {
			return err
		}
	}
}

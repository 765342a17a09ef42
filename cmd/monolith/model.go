package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/docs/models"
	"github.com/monolith-go/monolith/internal/model/inspect"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/internal/process/flags"
)

func newModel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Check a model's spec, tell what it costs, or begin a new one",
		Long: "A spec is a YAML file: docs/guides/models.md explains it, docs/models has ready ones. Nothing\n" +
			"here talks to a running system; 'declare' does.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newModelCheck(), newModelCost(), newModelInit())
	return cmd
}

// oneFile refuses any other number of arguments.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%w: %s takes one file (-: standard input), got %q", flags.ErrUsage, cmd.CommandPath(), args)
	}
	return nil
}

// show prints a report for people or for programs.
func show(cmd *cobra.Command, asJSON bool, report interface{ Print(io.Writer) error }) error {
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	}
	return report.Print(cmd.OutOrStdout())
}

func newModelCheck() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Compile a spec as every role does, and print what it is",
		Long: "Prints features, tables, outputs, layers with their shapes, and variables. Exits 1 with a\n" +
			"sentence for each error, its line and its node; what passes is accepted by 'declare' and runs.",
		Example: "  monolith model check docs/models/deepfm.yaml",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := specfile.Read(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			report, err := inspect.Check(spec)
			if err != nil {
				return err
			}
			return show(cmd, asJSON, report)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newModelCost() *cobra.Command {
	var asJSON, serving bool
	var batch int
	var on inspect.Machine
	cmd := &cobra.Command{
		Use:   "cost FILE",
		Short: "Tell what each operation of a model takes, and what binds it",
		Long: "Lists the operations of a training step, or of a Predict with --serving, as they are compiled:\n" +
			"GFLOP, MB, operations for each byte, and whether the processor's multiply-adders or its memory\n" +
			"bind. The machine's ceilings are measured first, in about a second, where they are not given; then\n" +
			"it is also said how fast memory can give the rows, and which kernels this processor got.",
		Example: "  monolith model cost docs/models/dcn-v2.yaml --batch 512",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if batch < 1 || batch > inspect.MaxBatch {
				return fmt.Errorf("%w: --batch %d must be 1 to %d", flags.ErrUsage, batch, inspect.MaxBatch)
			}
			if !(on.GFLOPs >= 0) || !(on.GBs >= 0) {
				return fmt.Errorf("%w: --gflops and --gbs must not be negative", flags.ErrUsage)
			}
			spec, err := specfile.Read(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			measured := on.GFLOPs == 0 || on.GBs == 0
			if measured {
				on = on.Or(inspect.Measure(400 * time.Millisecond))
			}
			costs, err := inspect.Cost(spec, batch, serving, on)
			if err == nil && measured {
				costs.Rows, err = inspect.RowCosts(spec, batch, serving, 100*time.Millisecond)
			}
			if err != nil {
				return err
			}
			return show(cmd, asJSON, costs)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.BoolVar(&serving, "serving", false, "of a Predict instead of a training step")
	f.IntVar(&batch, "batch", 512, "samples, 1 to 1048576")
	f.Float64Var(&on.GFLOPs, "gflops", 0, "what the processors do at most, in GFLOP/s (0: it is measured)")
	f.Float64Var(&on.GBs, "gbs", 0, "what the memory does at most, in GB/s (0: it is measured)")
	return cmd
}

func newModelInit() *cobra.Command {
	var like string
	cmd := &cobra.Command{
		Use:   "init FILE",
		Short: "Write a commented spec to begin with",
		Long: "Writes a model of the demo's ratings to FILE (-: standard output), which must not be there yet: a\n" +
			"DeepFM, or the ready model that --like names. It passes 'model check' and runs as it is.",
		Example: "  monolith model init mine.yaml --like din\n  monolith model check mine.yaml\n  monolith demo --spec mine.yaml",
		Args:    oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspect.Init(args[0], like, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&like, "like", "", "a ready model: "+strings.Join(models.Names(), ", ")+" (none: a DeepFM with a word on each part)")
	return cmd
}

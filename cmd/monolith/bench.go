//go:build !nobench

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/product"
	"github.com/monolith-go/monolith/loadtest/bench/suite"
	"github.com/monolith-go/monolith/loadtest/bench/zookeeper"
)

// benchCommands are bench and the server that it starts as a process of its own.
func benchCommands() []*cobra.Command { return []*cobra.Command{newBench(), newBenchZK()} }

func newBench() *cobra.Command {
	var asJSON, list bool
	var profile string
	var train product.TrainOptions
	cmd := &cobra.Command{
		Use:   "bench [NAME...]",
		Short: "Measure the hot paths beside a baseline",
		Long: "Each benchmark measures ours and a baseline in turns in the same run, and prints the median\n" +
			"of both, the spread of the rounds and the ratio. Everything runs on loopback in a temporary\n" +
			"folder; keep the machine idle meanwhile. Progress goes to stderr.",
		Example: "  monolith bench\n  monolith bench append replay --json\n  monolith bench predict --cpuprofile predict.pprof",
		RunE: func(cmd *cobra.Command, names []string) error {
			chosen, err := bench.Select(suite.All(train), names)
			if err != nil {
				return fmt.Errorf("%w: %w", flags.ErrUsage, err)
			}
			if list {
				return listBenchmarks(cmd.OutOrStdout(), chosen)
			}
			r := &bench.Runner{Progress: cmd.ErrOrStderr(), OursOnly: profile != ""}
			var results []bench.Result
			err = profiled(profile, func() (err error) {
				results, err = r.Run(cmd.Context(), chosen)
				return err
			})
			if err != nil {
				return err
			}
			if missed := bench.Missed(results); missed != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "off target:\n%v\n", missed)
			}
			if asJSON {
				return bench.WriteJSON(cmd.OutOrStdout(), results)
			}
			return bench.WriteTable(cmd.OutOrStdout(), results)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list of results instead of a table")
	cmd.Flags().BoolVar(&list, "list", false, "name the benchmarks and run none")
	cmd.Flags().StringVar(&profile, "cpuprofile", "", "write a CPU profile to `file`; the baselines are left out then")
	cmd.Flags().StringSliceVar(&train.Via, "via", product.Vias, "`roads` to the shards that train takes: process, unix, tcp")
	cmd.Flags().StringVar(&train.Model, "model", "deepfm", "`model` that train learns: deepfm or movies")
	return cmd
}

func listBenchmarks(w io.Writer, bs []bench.Benchmark) error {
	for _, b := range bs {
		if _, err := fmt.Fprintf(w, "%-12s %s\n", b.Name, b.About); err != nil {
			return err
		}
	}
	return nil
}

// profiled runs work with a CPU profile of it in file; "": without.
func profiled(file string, work func() error) (err error) {
	if file == "" {
		return work()
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return work()
}

// newBenchZK is the process beside which Apache's is measured.
func newBenchZK() *cobra.Command {
	var dir, addr string
	cmd := &cobra.Command{
		Use:    zookeeper.Command,
		Short:  "The server of the zk-… benchmarks: NATS and a replica-registry",
		Hidden: true,
		Args:   flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return zookeeper.Serve(cmd.Context(), dir, addr, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` of the log and the snapshots")
	cmd.Flags().StringVar(&addr, "zk-listen", "", "`address` of the ZooKeeper port")
	return cmd
}

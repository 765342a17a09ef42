package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/learning"
)

// Learn measures how well models learn.
func Learn() *cobra.Command {
	cfg := learning.Config{Simulated: 60_000, Epochs: 5}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "learn DIR",
		Short: "Measure how well models learn, and write a page with plots",
		Long: "Learns MovieLens beside TensorFlow, served copies by how often they are synchronised, a row for each id\n" +
			"beside hashed ids, and DeepFM with genres and history beside two features. DIR gets learning.md, and\n" +
			"its plots and figures below learning. Some minutes; what is not there to measure with is left out, and said.",
		Example: "  monolith learn /tmp/learning --ratings ml-latest-small/ratings.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: name the folder for the page, got %q", flags.ErrUsage, args)
			}
			if cfg.Seeds < 1 || cfg.Seeds > learning.MaxSeeds {
				return fmt.Errorf("%w: --seeds %d: give 1 to %d", flags.ErrUsage, cfg.Seeds, learning.MaxSeeds)
			}
			cfg.Python, cfg.Say = learning.Python(), saying(cmd)
			res, err := learning.Run(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := learning.Write(args[0], res); err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(res)
			}
			for _, c := range res.Claims() {
				mark := "holds "
				if !c.Holds {
					mark = "MISSED"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", mark, c.Sentence)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nThe page: %s\n", filepath.Join(args[0], "learning.md"))
			return err
		},
	}
	cmd.Flags().StringVar(&cfg.Ratings, "ratings", "", "MovieLens' ratings.csv, with movies.csv beside it; empty: what needs it is left out")
	cmd.Flags().IntVar(&cfg.Seeds, "seeds", 5, "how many `seeds` each figure but TensorFlow's is the mean of")
	cmd.Flags().IntVar(&cfg.Simulated, "simulated", cfg.Simulated, "`ratings` of a simulated audience")
	cmd.Flags().IntVar(&cfg.Epochs, "epochs", cfg.Epochs, "`epochs` of hashed and other ids")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the figures as one JSON object")
	return cmd
}

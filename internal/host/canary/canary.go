// Package canary is the command that starts, shows and stops the canary of a model.
package canary

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/services/publisher/canary"
)

// timeout is how long publishers may take to answer; of several all but the leader say to ask again.
const timeout = 10 * time.Second

// Command is monolith canary with its subcommands.
func Command() *cobra.Command {
	var conn connect.Config
	cmd := &cobra.Command{
		Use:   "canary",
		Short: "Try another version of a model on live requests: start it, look at it, stop it",
		Long: "Another version of a loaded model scores a share of its requests beside the planned one. By its rule\n" +
			"the publisher promotes it, so that it is planned, or rolls it back, with a fact that holds the figures of both.",
		Args: func(*cobra.Command, []string) error {
			return fmt.Errorf("%w: monolith canary start | status | stop MODEL", flags.ErrUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	conn.Register(cmd.PersistentFlags())
	var asJSON bool
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.AddCommand(start(&conn, &asJSON), status(&conn, &asJSON), stop(&conn, &asJSON))
	return cmd
}

func one(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%w: %s MODEL", flags.ErrUsage, cmd.CommandPath())
	}
	return nil
}

func start(conn *connect.Config, asJSON *bool) *cobra.Command {
	ask := &publish.CanaryDeclared{Rule: &publish.Rule{}}
	var mode string
	var expires time.Duration
	cmd := &cobra.Command{Use: "start MODEL", Short: "Keep another version beside the planned one and measure both", Args: one,
		Example: "  monolith canary start movies --candidate 9 --share 0.1 --mode shadow",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, known := publish.CanaryDeclared_Mode_value[strings.ToUpper(mode)]
			if !known {
				return fmt.Errorf("%w: --mode %q: give shadow or answer", flags.ErrUsage, mode)
			}
			if ask.Candidate == 0 {
				return fmt.Errorf("%w: %s %s --candidate VERSION: name the version to try", flags.ErrUsage, cmd.CommandPath(), args[0])
			}
			ask.ModelName, ask.Mode, ask.ExpiresMs = args[0], publish.CanaryDeclared_Mode(m), time.Now().Add(expires).UnixMilli()
			body, err := events.Marshal(ask)
			if err != nil {
				return err
			}
			return told(cmd, conn, *asJSON, "canaryStart", body)
		}}
	f := cmd.Flags()
	f.Int64Var(&ask.Candidate, "candidate", 0, "`version` to try, of the folder that is loaded")
	f.Float64Var(&ask.Share, "share", 0.1, "part of the requests that it scores, up to 1")
	f.StringVar(&mode, "mode", "shadow", "shadow: it scores copies of requests that are answered and recorded; answer: it answers")
	f.Uint32Var(&ask.Rule.MinRatings, "min-ratings", 1000, "ratings of both versions' answers before they are compared")
	f.Float64Var(&ask.Rule.MaxAucLoss, "max-auc-loss", 0.005, "how much lower its AUC may be")
	f.Float64Var(&ask.Rule.MaxCalibrationGap, "max-calibration-gap", 0.05, "how far its mean score may be from the mean label; 0: any")
	f.Float64Var(&ask.Rule.MaxP99Ratio, "max-p99-ratio", 2, "how much longer 99 in 100 requests may take; 0: any")
	f.DurationVar(&expires, "expires", 24*time.Hour, "how long it may take; undecided by then it is unloaded")
	return cmd
}

func stop(conn *connect.Config, asJSON *bool) *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "stop MODEL", Short: "Roll the canary back that runs", Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := json.Marshal(map[string]string{"modelName": args[0], "reason": reason})
			if err != nil {
				return err
			}
			return told(cmd, conn, *asJSON, "canaryStop", body)
		}}
	cmd.Flags().StringVar(&reason, "reason", "", "`sentence` for the fact")
	return cmd
}

// told sends a command that leads to a fact, and prints its sequence.
func told(cmd *cobra.Command, conn *connect.Config, asJSON bool, command string, body []byte) error {
	reply, err := call(cmd.Context(), conn, command, body)
	if err != nil {
		return err
	}
	var fact struct {
		Seq uint64 `json:"seq"`
	}
	if asJSON || json.Unmarshal(reply, &fact) != nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "event %d\n", fact.Seq)
	return err
}

func status(conn *connect.Config, asJSON *bool) *cobra.Command {
	return &cobra.Command{Use: "status MODEL", Short: "Show the figures of both versions, where the candidate is AVAILABLE, and the verdict", Args: one,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := json.Marshal(map[string]string{"modelName": args[0]})
			if err != nil {
				return err
			}
			reply, err := call(cmd.Context(), conn, "canary", body)
			if err != nil {
				return err
			}
			if *asJSON {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
				return err
			}
			return text(cmd.OutOrStdout(), reply)
		}}
}

// call asks publishers until one answers that leads.
func call(ctx context.Context, conn *connect.Config, command string, body []byte) ([]byte, error) {
	b, err := conn.Dial(ctx, "monolith canary")
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }() // the answer is here
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return connect.Call(ctx, b, conn.BZID, "publisher."+command, body, timeout)
}

// text prints the answer of publisher.canary as a table.
func text(out io.Writer, reply []byte) error {
	var s canary.Status
	if err := json.Unmarshal(reply, &s); err != nil {
		return fmt.Errorf("the publisher's answer does not decode: %w", err)
	}
	c := s.Declared.V
	verdict := "it runs until " + time.UnixMilli(c.GetExpiresMs()).UTC().Format(time.RFC3339)
	if v := s.Decided.V; v != nil {
		verdict = strings.ReplaceAll(strings.ToLower(v.GetVerdict().String()), "_", " ") + ": " + v.GetReason()
	} else if s.Problem != "" {
		verdict += ", and is not measured: " + s.Problem
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %g of requests, %s; %s\n", c.GetModelName(), c.GetShare(), strings.ToLower(c.GetMode().String()), verdict)
	fmt.Fprintln(w, "\tVERSION\tRATINGS\tAUC\tCALIBRATION\tP50 MS\tP99 MS")
	for _, row := range []struct {
		name string
		f    *publish.Figures
	}{{"stable", s.Stable.V}, {"candidate", s.Candidate.V}} {
		f := row.f
		fmt.Fprintf(w, "%s\t%d\t%d", row.name, f.GetVersion(), f.GetRatings())
		if f == nil {
			f = &publish.Figures{}
		}
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", known(f.Auc), known(f.Calibration), known(f.P50Ms), known(f.P99Ms))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range s.Places {
		stand := "AVAILABLE"
		if !p.Available {
			stand = "not AVAILABLE: " + p.Reason
		}
		if _, err := fmt.Fprintf(out, "%s of version %d on %s is %s\n", p.SubModel, c.GetCandidate(), p.Container, stand); err != nil {
			return err
		}
	}
	return nil
}

func known(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.4g", *v)
}

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/internal/host/archiving"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
)

func newArchive() *cobra.Command {
	var conn connect.Config
	var dir string
	var follow, verify, asJSON bool
	var o archive.WriterOptions
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Keep the log in sealed, checksummed segments of this machine",
		Long: "Writes what the log holds behind the archive's end into segments, and says what is archived.\n" +
			"Commands and roles that are given the same folder by --archive start from it, and read there\n" +
			"what `monolith trim` has removed from the log.",
		Example: "  monolith archive --dir archive\n  monolith archive --dir archive --follow\n  monolith archive --dir archive --verify --json",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return fmt.Errorf("%w: name the archive's folder with --dir", flags.ErrUsage)
			}
			a, err := archive.Open(dir)
			if err != nil {
				return err
			}
			if verify {
				if _, err := a.Verify(); err != nil {
					return err
				}
				return archiving.Describe(cmd.OutOrStdout(), a, asJSON)
			}
			if o.Log, err = conn.Logger(); err != nil {
				return err
			}
			if err := archiving.Write(cmd.Context(), conn, a, follow, o); err != nil {
				return err
			}
			return archiving.Describe(cmd.OutOrStdout(), a, asJSON)
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().StringVar(&dir, "dir", "", "`folder` of the archive")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until stopped")
	cmd.Flags().BoolVar(&verify, "verify", false, "write nothing; read every byte and compare the checksums")
	cmd.Flags().BoolVar(&asJSON, "json", false, "describe the archive as JSON")
	cmd.Flags().Uint64Var(&o.Events, "segment-events", 1_000_000, "events that end a segment")
	cmd.Flags().DurationVar(&o.Age, "segment-age", time.Hour, "how long a segment's first event waits at most for it to end")
	return cmd
}

func newTrim() *cobra.Command {
	var conn connect.Config
	var before uint64
	var keep time.Duration
	var yes bool
	cmd := &cobra.Command{
		Use:   "trim",
		Short: "Make the log forget what an archive holds",
		Long: "Removes events from the log's beginning, never one that the archive named by --archive does not\n" +
			"hold, whole and checked, and never one of the last 20 minutes. Sequences stay what they are.\n" +
			"The archive's folder is remembered beside the log: commands and roles that find it under that\n" +
			"path read on there; others need --archive for whatever begins before the cut.",
		Example: "  monolith archive --dir archive && monolith trim --archive archive --keep 168h --yes",
		Args:    flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case conn.Archive == "":
				return fmt.Errorf("%w: name the archive with --archive: only what it holds may be removed", flags.ErrUsage)
			case (before == 0) == (keep == 0):
				return fmt.Errorf("%w: give either --before or --keep", flags.ErrUsage)
			case keep != 0 && keep < archiving.Margin:
				return fmt.Errorf("%w: --keep %v: the log keeps at least its last %v", flags.ErrUsage, keep, archiving.Margin)
			}
			return archiving.Trim(cmd.Context(), conn, before, max(keep, archiving.Margin), yes, cmd.OutOrStdout())
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().Uint64Var(&before, "before", 0, "the `sequence` that becomes the log's first, at most")
	cmd.Flags().DurationVar(&keep, "keep", 0, "how much of the log's end stays, such as 168h")
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it; without, say what would be removed")
	return cmd
}

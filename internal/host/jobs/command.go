package jobs

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/host/fetch"
	"github.com/monolith-go/monolith/internal/host/runconfig"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Command is a command on a job's folder.
type Command interface {
	Register(fs *pflag.FlagSet)
	Validate() error
}

// Bind gives cmd the flags of j, and has it validate them before it runs.
func Bind(cmd *cobra.Command, j Command, run func(ctx context.Context) error) *cobra.Command {
	cmd.Args = flags.NoArgs
	var options runconfig.Options
	c, configured := j.(interface{ configured(*runconfig.Report) })
	if configured {
		options.Register(cmd.Flags())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := options.Apply(cmd.Flags(), cmd.Name(), os.Getenv)
		if err != nil {
			return err
		}
		report.Print(cmd.ErrOrStderr())
		if configured {
			c.configured(report)
		}
		if err := j.Validate(); err != nil {
			return err
		}
		return run(cmd.Context())
	}
	j.Register(cmd.Flags())
	return cmd
}

// CheckpointCommand carries trained models between this and the original.
func CheckpointCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Carry a trained model between this and Monolith in Python, or from other machines here",
		Long: "A model_dir of Monolith in Python holds its checkpoints: TensorFlow's files of dense variables, and\n" +
			"embedding tables beside them. 'export' writes one into such a folder, 'import' makes one of it with\n" +
			"which a job here begins. 'fetch' brings one whose parts lie on several machines to this one.",
		Args: flags.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(checkpointExport(), checkpointImport(), fetch.Command())
	return cmd
}

func checkpointExport() *cobra.Command {
	var c CheckpointExport
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a checkpoint into a model_dir of Monolith in Python",
		Long: "Writes the newest checkpoint of the job in --dir, or the one that --checkpoint names, as\n" +
			"model.ckpt-<step> of --to, and has the state files there name it as the newest.",
		Example: "  monolith checkpoint export --to /srv/python/model_dir\n" +
			"  monolith checkpoint export --to model_dir --ps 4 --variable deep/0/kernel=mlp/dense_0/kernel",
	}
	return Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout()) })
}

func checkpointImport() *cobra.Command {
	var c CheckpointImport
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Make a checkpoint of one in a model_dir of Monolith in Python",
		Long: "Reads the newest checkpoint of --from, or the one that --ckpt names, as the model that --spec\n" +
			"declares, and writes it to --to. A job begins with it by train --restore-dir. What the files and the\n" +
			"model disagree on is named before anything is written.",
		Example: "  monolith checkpoint import --spec deepfm.yaml --from /srv/python/model_dir --to from-python\n" +
			"  monolith train --spec deepfm.yaml --files 'part-*.json' --restore-dir from-python",
	}
	return Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.InOrStdin(), cmd.OutOrStdout()) })
}

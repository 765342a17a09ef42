package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host/jobs"
)

func newTrain() *cobra.Command {
	var c jobs.Train
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Learn files of records to their end, export the model, and report",
		Long: "Runs NATS and the roles that learning takes, embedded in this process, in a folder of its own, until\n" +
			"the files are learnt. Killed at any moment, the same command goes on: every record counts once. Files\n" +
			"that are not those that the job began with are refused.",
		Example: "  monolith train --spec deepfm.yaml --files 'part-*.json'\n" +
			"  monolith train --spec deepfm.yaml --files 'day={DATE(20260101,20260131)}/*.tfrecord.gz' --format example --max-steps 2000",
	}
	return jobs.Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
}

func newTrainAndEvaluate() *cobra.Command {
	var c jobs.TrainAndEvaluate
	cmd := &cobra.Command{
		Use:   "train-and-evaluate",
		Short: "Learn files in slices, and evaluate the model on others after each",
		Long: "Is train for --eval-every steps, then evaluate on --eval-files, again and again until the files are\n" +
			"learnt, with a line for each. Killed, the same command goes on.",
		Example: "  monolith train-and-evaluate --spec deepfm.yaml --files 'train-*.json' --eval-files test.json --eval-every 500",
	}
	return jobs.Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
}

func newEvaluate() *cobra.Command {
	var c jobs.Evaluate
	cmd := &cobra.Command{
		Use:   "evaluate",
		Short: "Tell loss and AUC of a checkpoint on files of records",
		Long: "Reads a checkpoint of the job in --dir, the newest or the one that --checkpoint names, and predicts the\n" +
			"records. Nothing is learnt and no offset moves, also while the job runs.",
		Example: "  monolith evaluate --files 'held-out-*.json'\n  monolith evaluate --files test.tfrecord --format example --checkpoint 3 --json",
	}
	return jobs.Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout()) })
}

func newPredict() *cobra.Command {
	var c jobs.Predict
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "Write a checkpoint's scores of files of records",
		Long: "Writes a line for each sample, in the order of the records: its score, or one for each task with tabs\n" +
			"between them. Records need no labels. One that the model cannot read has a line with a dash.",
		Example: "  monolith predict --files new.json\n  monolith predict --files new.json --to scores.txt",
	}
	return jobs.Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
}

func newExport() *cobra.Command {
	var c jobs.Export
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a checkpoint as model servers load it",
		Long: "Writes entry and ps_0, ps_1, … to --to, of the newest checkpoint or the one that --checkpoint names: what\n" +
			"the job itself would have exported then, byte for byte, unless flags ask for something else. With\n" +
			"--format saved-model it is one SavedModel that TensorFlow scores by itself.",
		Example: "  monolith export --to /srv/models/movies\n  monolith export --to hdfs://namenode:8020/models/movies --checkpoint 3 --compress '*=fp16'\n" +
			"  monolith export --to /srv/tensorflow/movies --format saved-model",
	}
	return jobs.Bind(cmd, &c, func(ctx context.Context) error { return c.Run(ctx, cmd.OutOrStdout()) })
}

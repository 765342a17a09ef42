package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
)

// topicNames are the Kafka topics of one installation. Empty names are the namespace's
// own, so that two installations on one Kafka share none.
type topicNames struct{ ratings, predictions string }

func (t *topicNames) register(fs *pflag.FlagSet) {
	fs.StringVar(&t.ratings, "ratings-topic", "", "training `topic`; empty: ratings, and <bzid>.ratings outside of the namespace demo")
	fs.StringVar(&t.predictions, "predictions-topic", "", "`topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
}

// of fills in the names that were not given.
func (t topicNames) of(bzid string) topicNames {
	return topicNames{
		ratings:     cmp.Or(t.ratings, kafka.TopicOf(bzid, ratingsTopic)),
		predictions: cmp.Or(t.predictions, kafka.TopicOf(bzid, predictionsTopic)),
	}
}

func (t topicNames) validate() error {
	var errs []error
	for flag, name := range map[string]string{"ratings-topic": t.ratings, "predictions-topic": t.predictions} {
		if err := kafka.ValidTopic(name); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if t.ratings == t.predictions {
		errs = append(errs, fmt.Errorf("--ratings-topic and --predictions-topic are both %q: name two topics", t.ratings))
	}
	return errors.Join(errs...)
}

// retention is how long the embedded broker keeps records; 0: for ever.
type retention struct{ ratings, predictions time.Duration }

func (r *retention) register(fs *pflag.FlagSet) {
	fs.DurationVar(&r.ratings, "ratings-retention", 0, "age at which the embedded Kafka deletes ratings; 0: never. What is not learnt by then stops the job")
	fs.DurationVar(&r.predictions, "predictions-retention", 7*24*time.Hour, "age at which the embedded Kafka deletes impressions; 0: never")
}

func (r retention) validate() error {
	for flag, d := range map[string]time.Duration{"ratings-retention": r.ratings, "predictions-retention": r.predictions} {
		if d < 0 || d > 0 && d < time.Minute {
			return fmt.Errorf("--%s %v: give 0, or 1m and more", flag, d)
		}
	}
	return nil
}

// predictionsOf is the topic of impressions of the installation in a data folder.
func predictionsOf(dir, bzid string) string {
	r, err := readRunning(dir)
	if err != nil { // a folder from before it said so
		r = running{}
	}
	return topicNames{predictions: r.Predictions}.of(bzid).predictions
}

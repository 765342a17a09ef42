package host

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
)

// Topics are the Kafka topics of one installation. Empty names are the namespace's
// own, so that two installations on one Kafka share none.
type Topics struct{ Ratings, Predictions string }

// Register binds their flags.
func (t *Topics) Register(fs *pflag.FlagSet) {
	fs.StringVar(&t.Ratings, "ratings-topic", "", "training `topic`; empty: ratings, and <bzid>.ratings outside of the namespace demo")
	fs.StringVar(&t.Predictions, "predictions-topic", "", "`topic` of impressions; empty: predictions, and <bzid>.predictions outside of the namespace demo")
}

// Of fills in the names that were not given.
func (t Topics) Of(bzid string) Topics {
	return Topics{
		Ratings:     cmp.Or(t.Ratings, kafka.TopicOf(bzid, RatingsTopic)),
		Predictions: cmp.Or(t.Predictions, kafka.TopicOf(bzid, predictionsTopic)),
	}
}

// Validate complains about names that Kafka does not take.
func (t Topics) Validate() error {
	var errs []error
	for flag, name := range map[string]string{"ratings-topic": t.Ratings, "predictions-topic": t.Predictions} {
		if err := kafka.ValidTopic(name); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	if t.Ratings == t.Predictions {
		errs = append(errs, fmt.Errorf("--ratings-topic and --predictions-topic are both %q: name two topics", t.Ratings))
	}
	return errors.Join(errs...)
}

// Retention is how long the embedded broker keeps records; 0: for ever.
type Retention struct{ Ratings, Predictions time.Duration }

func (r *Retention) register(fs *pflag.FlagSet) {
	fs.DurationVar(&r.Ratings, "ratings-retention", 0, "age at which the embedded Kafka deletes ratings; 0: never. What is not learnt by then stops the job")
	fs.DurationVar(&r.Predictions, "predictions-retention", 7*24*time.Hour, "age at which the embedded Kafka deletes impressions; 0: never")
}

func (r Retention) validate() error {
	for flag, d := range map[string]time.Duration{"ratings-retention": r.Ratings, "predictions-retention": r.Predictions} {
		if d < 0 || d > 0 && d < time.Minute {
			return fmt.Errorf("--%s %v: give 0, or 1m and more", flag, d)
		}
	}
	return nil
}

// PredictionsOf is the topic of impressions of the installation in a data folder.
func PredictionsOf(dir, bzid string) string {
	r, err := ReadRunning(dir)
	if err != nil { // a folder from before it said so
		r = Running{}
	}
	return Topics{Predictions: r.Predictions}.Of(bzid).Predictions
}

package doctor

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// kafka looks for the topics.
func (e *examination) kafka(ctx context.Context) {
	if e.cfg.Kafka == "" {
		return
	}
	access, err := e.cfg.Access.Access()
	if err != nil {
		e.ill("kafka", sentence(err), "mend the --kafka-tls and --kafka-sasl flags, or the files that they name", "kafka-is-away")
		return
	}
	for _, topic := range e.cfg.Topics {
		check := "topic " + topic
		asked, cancel := context.WithTimeout(ctx, e.cfg.Patience)
		first, ends, err := access.Bounds(asked, flags.List(e.cfg.Kafka), topic)
		cancel()
		if err != nil {
			e.ill(check, e.cfg.Kafka+": "+sentence(err), fmt.Sprintf("start the brokers, name them with --kafka, or make the topic (kafka-topics --create --topic %s)", topic), "kafka-is-away")
			continue
		}
		var records int64
		for p, end := range ends {
			records += end - first[p]
		}
		e.well(check, "it has %d partitions and about %d records.", len(ends), records)
	}
}

package shard

import (
	"fmt"

	"github.com/monolith-go/monolith/events"
)

// Context is the token of this package's events in subjects.
const Context = "shard"

// Aggregate names a shard of a job.
func Aggregate(job string, index uint32) string { return fmt.Sprintf("%s/ps:%d", job, index) }

// Subject is that of a shard of a job.
func Subject(bzid, job string, index uint32) events.Subject {
	return events.Join(bzid, Context, Aggregate(job, index))
}

package training

import "github.com/monolith-go/monolith/events"

// Context is the token of this package's events in subjects.
const Context = "training"

// Subject is that of a job: what its chief says, and what is asked of it.
func Subject(bzid, job string) events.Subject { return events.Join(bzid, Context, job) }

// TrainerSubject is that of one of the job's trainers.
func TrainerSubject(bzid, job, trainer string) events.Subject {
	return events.Join(bzid, Context, job+"/"+trainer)
}

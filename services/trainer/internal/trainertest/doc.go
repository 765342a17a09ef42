// Package trainertest is what the tests of the trainer's packages share: small models, shards
// that answer the commands of a cut and have no rows, and the lines that were logged.
package trainertest

// BZID and Job name the namespace and the training job of the tests.
const (
	BZID = "test"
	Job  = "job"
)

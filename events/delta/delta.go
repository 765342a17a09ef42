// Package delta holds the messages of the sync stream: absolute rows and dense variables
// on their way from a training shard to every follower.
package delta

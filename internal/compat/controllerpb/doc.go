// Package controllerpb is the wire form of the original's controller of a training job: the service
// that its clients find by an address file, and the file of actions.
package controllerpb

// Package incarnation names a process among all that ever ran, so that another process on the
// same machine can tell that it has ended.
package incarnation

// Package idlpb holds the original's instance messages (Instance, its Feature and
// LineId) under their own package names and field numbers. They live apart from
// matrixpb, because both define a Feature and lists of numbers.
package idlpb

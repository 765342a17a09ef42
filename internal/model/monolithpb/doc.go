// Package monolithpb holds the original's protobuf messages under their own package
// names and field numbers, so that files and calls of either side are read by the other.
package monolithpb

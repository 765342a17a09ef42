// Package inferencepb is the gRPC form of the open inference protocol, version 2 (KServe, Triton),
// generated from inference.proto.
package inferencepb

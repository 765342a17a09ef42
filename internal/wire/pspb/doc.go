// Package pspb is the gRPC form of a parameter-server shard, generated from ps.proto.
package pspb

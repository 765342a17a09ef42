// Package agentpb is the wire form of the original's agent service, generated from
// agent_service.proto.
package agentpb

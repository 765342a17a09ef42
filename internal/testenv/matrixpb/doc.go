// Package matrixpb holds the original's example messages (Example, ExampleBatch,
// FeatureConfigs and what they are made of) under their own package names and field
// numbers, and turns them into the plain values that kernels/layout computes on. Decoders of
// internal/input are held against it in tests; programs parse without it.
package matrixpb

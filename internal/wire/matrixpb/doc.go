// Package matrixpb holds the original's example messages (Example, ExampleBatch,
// FeatureConfigs and what they are made of) under their own package names and field
// numbers. Decoders of internal/input and kernels/layout, which parse bytes, are held against
// them; clients that write such messages or read them as text use these.
package matrixpb

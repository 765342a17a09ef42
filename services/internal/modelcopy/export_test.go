package modelcopy

// MaxDepth is maxDepth.
const MaxDepth = maxDepth

package table

// Part says to which of parts, 0 to parts-1, an id belongs; ids spread evenly over them.
//
// No call starts goroutines. A caller that wants a great batch written on several cores
// splits it by Part and makes a call for each at the same time: equal ids stay together,
// so their gradients are summed as in one call. Where parts divides 64, no two parts share
// a lock. What of the batch an error leaves out is each call's own affair then.
func Part(id int64, parts int) int {
	return int(hashOf(id) >> 32 * uint64(parts) >> 32)
}

package files

// Ends is where each partition of the set ends, in a job of at most so many steps; 0: no limit.
// A step is batch records of one partition, and partitions take turns; the last step of a partition
// may be shorter. So the same limit is the same records at every start.
func (s *Set) Ends(batch, steps int64) map[int32]int64 {
	ends := map[int32]int64{}
	if steps <= 0 {
		for p, end := range s.ends {
			ends[int32(p)] = end
		}
		return ends
	}
	for p := range s.ends {
		ends[int32(p)] = 0
	}
	for left, more := steps, true; left > 0 && more; {
		more = false
		for p, end := range s.ends {
			if at := ends[int32(p)]; at < end && left > 0 {
				ends[int32(p)] = min(at+batch, end)
				left--
				more = true
			}
		}
	}
	return ends
}

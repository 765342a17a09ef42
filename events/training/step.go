package training

// Step is how many applies the checkpoint contains.
func (c *Checkpoint) Step() (step uint64) {
	for _, f := range c.GetShards() {
		step = max(step, f.GetStep())
	}
	return step
}

package par

// job is what a round does: one of the three.
type job struct {
	n     int
	task  func(i int)
	each  func(worker, i int)
	r     Range
	size  int // of r
	grain int
}

func (j *job) do(worker, i int) {
	switch {
	case j.each != nil:
		j.each(worker, i)
	case j.task != nil:
		j.task(i)
	default:
		j.r.Do(i*j.grain, min(j.size, (i+1)*j.grain))
	}
}

// Run calls do for every i below n, on all threads, and returns when all have returned.
func (p *Pool) Run(n int, do func(i int)) {
	if p.alone(n) {
		for i := range n {
			do(i)
		}
		return
	}
	p.run(n, job{task: do})
}

// Each is Run for work that needs memory by thread: worker is below Threads, and no two
// calls of do within one call of Each have the same worker at the same time.
func (p *Pool) Each(n int, do func(worker, i int)) {
	if p.alone(n) {
		for i := range n {
			do(0, i)
		}
		return
	}
	p.run(n, job{each: do})
}

// Range is work on a range of indices.
type Range interface{ Do(lo, hi int) }

// For runs r over 0 to n, cut into pieces of grain (at least 1) indices, the last of which
// may be shorter, on all threads. The pieces depend on n and grain only, not on the threads.
func (p *Pool) For(n, grain int, r Range) {
	if n <= 0 {
		return
	}
	pieces := (n-1)/grain + 1
	if p.alone(pieces) {
		for lo := 0; pieces > 0; lo, pieces = lo+grain, pieces-1 {
			r.Do(lo, min(n, lo+grain))
		}
		return
	}
	p.run(pieces, job{r: r, size: n, grain: grain})
}

package layout

// Runner runs do(0) to do(n-1), each once, in any order and as many at a time as it
// likes, and returns when all have returned, as a par.Pool does. It is the original's
// parallel_flag: a nil Runner means 0, everything in the caller's goroutine.
type Runner interface {
	Run(n int, do func(task int))
}

func run(r Runner, n int, do func(task int)) {
	if r == nil || n == 1 {
		for i := range n {
			do(i)
		}
		return
	}
	r.Run(n, do)
}

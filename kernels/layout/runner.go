package layout

// Runner runs do(0) to do(n-1), each once, in any order and as many at a time as it
// likes, and returns when all have returned, as a par.Pool does. It is the original's
// parallel_flag: a nil Runner means 0, everything in the caller's goroutine.
type Runner interface {
	Run(n int, do func(task int))
}

// run gives do its argument instead of letting it capture one: without a runner nothing is
// allocated.
func run[T any](r Runner, n int, arg T, do func(arg T, task int)) {
	if r == nil || n == 1 {
		for i := range n {
			do(arg, i)
		}
		return
	}
	r.Run(n, func(task int) { do(arg, task) })
}

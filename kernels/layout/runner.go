package layout

// Runner runs do(0) to do(n-1), each once, in any order and as many at a time as it
// likes, and returns when all have returned, as a par.Pool does. It is the original's
// parallel_flag: a nil Runner means 0, everything in the caller's goroutine.
type Runner interface {
	Run(n int, do func(task int))
}

// each runs do(arg, 0) to do(arg, n-1). It keeps the function that a Runner is given, so that who keeps an
// each allocates nothing.
type each[T any] struct {
	arg  T
	do   func(arg T, task int)
	call func(task int)
}

func (e *each[T]) run(r Runner, n int, arg T, do func(arg T, task int)) {
	if r == nil || n == 1 {
		for i := range n {
			do(arg, i)
		}
		return
	}
	if e.call == nil {
		e.call = func(task int) { e.do(e.arg, task) }
	}
	e.arg, e.do = arg, do
	r.Run(n, e.call)
	var none T
	e.arg, e.do = none, nil
}

package health

// Reported is the failure in a row that is reported, the ones before are not: a server that
// starts again answers the next attempt.
const Reported = 3

// Attempts are one thing that is tried again and again by one goroutine.
type Attempts struct {
	state    *State
	name     string
	failures int
}

// Attempts watches what has that name, which is a problem from the third failure in a row
// until a success.
func (s *State) Attempts(name string) *Attempts { return &Attempts{state: s, name: name} }

// Failed takes note of a failure and returns how many there were in a row.
func (a *Attempts) Failed(err error) int {
	if a.failures++; a.failures >= Reported {
		a.state.Fail(a.name, err)
	}
	return a.failures
}

// Succeeded takes note of a success.
func (a *Attempts) Succeeded() {
	a.failures = 0
	a.state.OK(a.name)
}

package par

import "runtime"

// started is how many processors Go used when the program began: those of its quota, where there is one.
var started = runtime.GOMAXPROCS(0)

// Processors is how many threads compute at once where nobody says otherwise. A process that lets Go run more
// goroutines at once, since some of them wait for a disk, has no more processors for that.
func Processors() int { return min(runtime.GOMAXPROCS(0), started) }

package par

import (
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for set, want := range map[int]int{started: started, started + 2: started, 1: 1} {
		if runtime.GOMAXPROCS(set); Processors() != want {
			t.Errorf("%d processors of GOMAXPROCS %d, not %d", Processors(), set, want)
		}
	}
}

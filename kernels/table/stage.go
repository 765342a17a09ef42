package table

import "unsafe"

// stage is work on some rows of a burst, an update for instance, and how far the bursts
// behind it are: what its assembly sees. Pooled sums use the second half alone. What that moves on is no pointer, as it may end up behind an array.
type stage struct {
	slots  uintptr // of the rows
	n      int
	from   uintptr // of each slot, its gradient's row in grads
	sum    uintptr // or, unless negative, in sums
	grads  *float32
	sums   *float32
	dim    int
	rate   float32
	decay  float32
	times  unsafe.Pointer // chunks of the rows' times
	shift  uint64
	mask   uint64
	second uint64 // the time of the update

	ahead int // the slots whose rows are asked for lie so many bytes behind those of these; 0: there are none
	lines int // of each

	hashes uintptr // of the ids that set out, 0: none
	heads  *head
	slots1 uintptr // theirs
	slots2 uintptr // the burst whose buckets are looked at, 0: none
	list   uintptr // the next ones' numbers in it
	rows   *view
	more   uintptr // where the number of one goes that is to be looked at again

	counter uintptr // offset in head, see pipe
}

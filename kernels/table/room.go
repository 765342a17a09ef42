package table

import "errors"

// ErrCrowded is wrapped by the error of a call that left out ids because too many others
// have their place in the index, which only happens to ids that were chosen for it. The
// rest of the call was done.
var ErrCrowded = errors.New("ids crowd one place")

// Room reports whether the limits leave room for rows of those ids that have none, all of
// them admitted; if not, it is the [ErrFull] that Optimize or Assign would return, and for
// ids that they refuse it is that error, where there are limits. Nothing is reserved, so
// it holds only as long as the caller keeps other writers away.
func (t *Table) Room(ids []int64) error {
	if t.cfg.MaxRows == 0 && t.cfg.MaxBytes == 0 {
		return nil
	}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	if err := t.plan("room", p, ids, nil); err != nil {
		return err
	}
	reserved, err := t.admit(p, false)
	if err == nil {
		t.reserved.Add(-reserved)
	}
	return err
}

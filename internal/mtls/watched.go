package mtls

import (
	"os"
	"sync"
	"time"
)

// watched is the meaning of a file that is read anew when it has changed, at most once a
// second. While the new content cannot be read the old one holds: a certificate and its key
// are renewed one after the other.
type watched[T any] struct {
	path string // whose time of change counts
	read func() (T, error)

	mu      sync.Mutex // guards what follows
	looked  time.Time
	changed time.Time // of path, when value was read
	value   T
	held    bool // there is a value
}

func (w *watched[T]) current() (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.held && now.Sub(w.looked) < time.Second {
		return w.value, nil
	}
	w.looked = now
	st, err := os.Stat(w.path)
	if err == nil && w.held && st.ModTime().Equal(w.changed) {
		return w.value, nil
	}
	if err == nil {
		var v T
		if v, err = w.read(); err == nil {
			w.value, w.changed, w.held = v, st.ModTime(), true
		}
	}
	if w.held {
		return w.value, nil
	}
	return w.value, err
}

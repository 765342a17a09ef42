package modelserver

import (
	"os"
	"time"
)

// dirTime is when a directory last changed; false if there is none.
func dirTime(dir string) (time.Time, bool) {
	st, err := os.Stat(dir)
	if err != nil || !st.IsDir() {
		return time.Time{}, false
	}
	return st.ModTime(), true
}

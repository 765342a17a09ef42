package mtls

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A file is looked at once a second, and read when it has changed; what cannot be read leaves
// the old content in force until it can.
func TestWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	synctest.Test(t, func(t *testing.T) {
		write := func(text string, at time.Duration) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			changed := time.Now().Add(at)
			if err := os.Chtimes(path, changed, changed); err != nil {
				t.Fatal(err)
			}
		}
		reads := 0
		w := &watched[string]{path: path, read: func() (string, error) {
			reads++
			raw, err := os.ReadFile(path)
			if err == nil && string(raw) == "broken" {
				err = errors.New("broken")
			}
			return string(raw), err
		}}
		want := func(text string, times int) {
			t.Helper()
			if got, err := w.current(); err != nil || got != text || reads != times {
				t.Errorf("%q, %v after %d reads; want %q after %d", got, err, reads, text, times)
			}
		}
		if _, err := w.current(); err == nil {
			t.Error("a file that is not there")
		}
		write("one", 0)
		want("one", 1)
		write("two", time.Hour)
		want("one", 1)
		time.Sleep(time.Second)
		want("two", 2)
		time.Sleep(time.Second)
		want("two", 2)
		write("broken", 2*time.Hour)
		time.Sleep(time.Second)
		want("two", 3)
		time.Sleep(time.Second)
		want("two", 4)
		write("three", 3*time.Hour)
		time.Sleep(time.Second)
		want("three", 5)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		want("three", 5)
	})
}

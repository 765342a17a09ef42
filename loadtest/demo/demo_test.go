package demo

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// TestDemoRefusesAnotherSource in the folder of a run that was begun with a file of the
// same name: ratings are told apart by their place in it.
func TestDemoRefusesAnotherSource(t *testing.T) {
	dir := t.TempDir()
	open := func(rows string) *Source {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ratings.csv")
		if err := os.WriteFile(path, []byte("userId,movieId,rating,timestamp\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSource(Config{Data: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 2 { // begun, and gone on with from another place
		if err := open("1,2,3,4\n").pin(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("1,2,3,5\n").pin(dir); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "was begun with another file") {
		t.Errorf("another file: %v", err)
	}
	simulated, err := OpenSource(Config{Rate: 10, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := simulated.pin(dir); err != nil {
		t.Errorf("the simulator, which is told apart by its name: %v", err)
	}
}

// TestProgressWithoutATerminal writes lines, no carriage returns.
func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out)
		p.start("ratings", 1000)
		for i := range 25 { // a second each
			p.set(i*40, "ratings")
			time.Sleep(time.Second)
		}
		p.finish()
		p.close()
		got := out.String()
		if strings.ContainsAny(got, "\r\x1b") || strings.Count(got, "\n") != 2 || !strings.Contains(got, "400 of 1000 ratings") || !strings.Contains(got, "800 of 1000 ratings") {
			t.Errorf("%q", got)
		}
	})
}

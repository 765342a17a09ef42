package archive_test

import (
	"os"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/projections/registry"
)

// Every view comes out of the archive as it does out of the log, whichever contexts it
// says it folds: the golden line of each fact stands in the log twice.
func TestViewsNameTheContextsThatTheyFold(t *testing.T) {
	golden, err := os.ReadFile("../../events/catalog/testdata/golden/v1.tsv")
	if err != nil {
		t.Fatal(err)
	}
	b := mem.New()
	defer b.Close()
	var n uint64
	for range 2 {
		for line := range strings.Lines(string(golden)) {
			subject, body, ok := strings.Cut(strings.TrimSpace(line), "\t")
			if !ok {
				t.Fatalf("no golden line: %q", line)
			}
			if n, err = b.Publish(soon(t), subject, nil, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := write(t, t.TempDir(), b.Log(), n, archive.WriterOptions{Events: 17})
	log := a.Log(&gone{Log: b.Log(), first: n + 1})
	for _, name := range registry.Names() {
		_, want, err := registry.Replay(soon(t), b.Log(), name, "", n)
		if err != nil {
			t.Fatal(err)
		}
		if _, got, err := registry.Replay(soon(t), log, name, "", n); err != nil || got != want {
			t.Errorf("view %s: %s, %v; from the log %s", name, got, err, want)
		}
	}
}

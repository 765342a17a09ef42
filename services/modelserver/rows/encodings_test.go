package rows

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// Deltas are read as they were meant, whichever build wrote them: each line of the file is an encoding
// with a build that wrote it, the message, and the rows of the ids 1 and 2.
func TestDeltasOfEveryBuild(t *testing.T) {
	text, err := os.ReadFile("testdata/encodings.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, ": ")
		message, want, _ := strings.Cut(rest, " ")
		data, err := hex.DecodeString(message)
		if err != nil {
			t.Fatal(name, err)
		}
		var d delta.Delta
		if err := proto.Unmarshal(data, &d); err != nil {
			t.Fatal(name, err)
		}
		m := &Shard{Model: "m", Shards: 1}
		if err := m.Declare(nil, "user", 3); err != nil {
			t.Fatal(err)
		}
		if err := m.Whole(); err != nil {
			t.Fatal(err)
		}
		if err := m.Apply(&d, 7, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := m.Find([]rowwire.TableIDs{{Table: "user", IDs: []int64{1, 2}}})
		if err != nil || fmt.Sprint(got[0]) != want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, want)
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d encodings are read", len(lines))
	}
}

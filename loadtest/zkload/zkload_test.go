package zkload_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/loadtest/zkload"
)

// The client is held against Apache ZooKeeper: what it counts as done has been done, and
// an answer that says otherwise ends a run.
func TestLoad(t *testing.T) {
	addr := oracle.ZooKeeper(t).Addr
	ctx := t.Context()
	c, err := zkload.Dial(ctx, addr, 8)
	if err != nil {
		t.Fatal(err)
	}
	run := func(n, window int, q zkload.Request) error {
		took, err := c.Run(ctx, n, window, q)
		if err == nil && took <= 0 {
			t.Errorf("%d requests took %v", n, took)
		}
		return err
	}
	for _, step := range []struct {
		name      string
		n, window int
		q         zkload.Request
		fails     string
	}{
		{"create the parent", 1, 1, zkload.Make("/load", nil), ""},
		{"create 1,001 nodes", 1001, 16, zkload.Create("/load", []byte("x")), ""},
		{"get them all", 1001, 3, zkload.Get("/load", 1001), ""},
		{"set some", 500, 64, zkload.Set("/load", 7, []byte("y")), ""},
	} {
		if err := run(step.n, step.window, step.q); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	writer, err := zkload.Dial(ctx, addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	took, err := c.Notify(ctx, writer, zkload.Name("/load", 3), []byte("z"), 5)
	if err != nil || len(took) != 5 {
		t.Fatalf("%v, %v", took, err)
	}
	for _, d := range took {
		if d <= 0 || d > zkload.Patience {
			t.Errorf("the last session heard after %v", d)
		}
	}
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
	if err := run(1, 1, zkload.Get("/nowhere", 1)); err == nil || !strings.Contains(err.Error(), "-101") {
		t.Errorf("a node that is not there: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close after a refused request: %v", err)
	}
	if _, err := zkload.Dial(ctx, "127.0.0.1:1", 2); err == nil {
		t.Error("sessions where nobody listens")
	}
}

package conn

import (
	"context"
	"testing"
	"time"
)

// What is limited to the connection of a moment ends with it, also with one that came back; without
// a connection it is limited by its own time alone.
func TestWhileUp(t *testing.T) {
	c := &Conn{link: newLink()}
	while := func() context.Context {
		ctx, cancel := c.WhileUp(t.Context(), time.Hour)
		t.Cleanup(cancel)
		return ctx
	}
	for range 3 {
		up := while()
		c.link.set(true) // it is up already
		if up.Err() != nil {
			t.Fatal("it ended while the connection stands")
		}
		also := while()
		c.link.set(false)
		<-up.Done()
		<-also.Done()
		if down := while(); down.Err() != nil {
			t.Error("without a connection it ends at once")
		}
		c.link.set(true)
	}
	ctx, cancel := c.WhileUp(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
}

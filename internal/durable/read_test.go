package durable

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestUntilDone(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r := UntilDone(ctx, iotest.OneByteReader(strings.NewReader("abc")))
	if got, err := io.ReadAll(io.LimitReader(r, 2)); err != nil || string(got) != "ab" {
		t.Errorf("%q, %v", got, err)
	}
	cancel(errors.New("enough"))
	if got, err := io.ReadAll(r); !errors.Is(err, context.Canceled) || len(got) != 0 {
		t.Errorf("behind the end of its context: %q, %v", got, err)
	}
}

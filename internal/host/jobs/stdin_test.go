package jobs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// pipe learns standard input in a folder of its own.
func (r room) pipe(ctx context.Context, dir string, from io.Reader, args ...string) (*Learnt, error) {
	r.t.Helper()
	c := parsed(r.t, &Train{}, append([]string{"--spec", "model.yaml", "--dir", dir, "--files", "-", "--batch", "50", "--shards", "2"}, args...)...)
	c.Stdin = io.NopCloser(from)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c.Learn(ctx, r.t.Output())
}

// What a pipe gives is learnt once, to its end. A start that would have to go back to it is refused, and
// says what is left.
func TestTrainOnStandardInput(t *testing.T) {
	r := newRoom(t)
	l, err := r.pipe(t.Context(), "job", strings.NewReader(ratings(1, 700)+"broken\n"+ratings(2, 300)))
	if err != nil || l.Records != 1001 || l.Learnt != 1001 || l.Samples != 1000 || l.Parked != 1 || l.Left != 0 || !l.Stdin || l.Stopped != "end of standard input" || l.Version != l.Checkpoint {
		t.Fatalf("%+v, %v", l, err)
	}
	var page bytes.Buffer
	if err := l.Print(&page); err != nil || !strings.Contains(page.String(), "standard input, 1001 records, which cannot be read again") {
		t.Errorf("%v:\n%s", err, page.String())
	}
	r.write("test.json", ratings(3, 200))
	if q := r.evaluate("--files", "test.json"); q.Samples != 200 || q.AUC() < 0.9 {
		t.Errorf("%+v", q)
	}
	for _, files := range []string{"-", "test.json"} {
		c := parsed(t, &Train{}, "--spec", "model.yaml", "--dir", "job", "--files", files)
		c.Stdin = io.NopCloser(strings.NewReader(ratings(4, 10)))
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Learn(t.Context(), t.Output()); !errors.Is(err, flags.ErrUsage) || !strings.Contains(err.Error(), "which cannot be read again: checkpoint") || !strings.Contains(err.Error(), "the first 1001 records") {
			t.Errorf("--files %s: %v", files, err)
		}
	}
	for _, refused := range [][]string{{"--steps", "3"}, {"--max-steps", "3"}, {"--epochs", "2"}, {"--deterministic"}, {"--processes"}, {"--spec", "-"}, {"--format", "example", "--container", "lines"}} {
		if _, err := r.pipe(t.Context(), "new", strings.NewReader(""), refused...); !errors.Is(err, flags.ErrUsage) {
			t.Errorf("%q: %v", refused, err)
		}
	}
}

// An interrupt ends what is read, and what was read is learnt.
func TestInterruptedStandardInput(t *testing.T) {
	newRoom(t)
	in, out := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(out, ratings(1, 300))
		time.AfterFunc(time.Second, interrupt)
		_, _ = io.WriteString(out, ratings(2, 1)) // nobody ends the pipe
	}()
	c := parsed(t, &Train{}, "--spec", "model.yaml", "--dir", "job", "--files", "-")
	c.Stdin = in
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	l, err := c.Learn(ctx, t.Output())
	if err != nil || l.Learnt != l.Records || l.Records < 300 || l.Records > 301 {
		t.Errorf("%+v, %v", l, err)
	}
}

// Input that breaks off is an error behind a report of what came before.
func TestDamagedStandardInput(t *testing.T) {
	r := newRoom(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, ratings(1, 20000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := r.pipe(t.Context(), "job", bytes.NewReader(packed.Bytes()[:packed.Len()*3/4]), "--compression", "gzip")
	if err == nil || !strings.Contains(err.Error(), "standard input: record ") || !strings.Contains(err.Error(), "what came before it is learnt") {
		t.Fatal(err)
	}
	if l == nil || l.Records < 5000 || l.Records > 19000 || l.Learnt != l.Records {
		t.Errorf("%+v", l)
	}
}

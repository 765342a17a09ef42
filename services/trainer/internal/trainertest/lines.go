package trainertest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Lines are what is logged at Info and above.
type Lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes one line.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// Logger writes to l.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// All returns the lines so far.
func (l *Lines) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(strings.Lines(l.buf.String()))
}

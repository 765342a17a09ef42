package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress is what a person watches while a run goes on: sentences and one bar.
type progress struct {
	mu  sync.Mutex
	w   io.Writer
	bar *progressbar.ProgressBar // guarded by mu
}

func newProgress(w io.Writer) *progress { return &progress{w: w} }

// say prints a sentence above the bar.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear() // the terminal's trouble, not the run's
	}
	fmt.Fprintf(p.w, "%s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// start begins a bar of total steps.
func (p *progress) start(what string, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("ratings"),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
}

// set moves the bar; note is shown beside it.
func (p *progress) set(done int, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		p.bar.Describe(note)
		_ = p.bar.Set(done)
	}
}

func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
		p.bar = nil
	}
}

func (p *progress) close() { p.finish() }

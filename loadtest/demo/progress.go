package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is what a person watches while a run goes on: sentences and, on a terminal,
// one bar. Elsewhere, as in the log of a build, the bar is a sentence now and then.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar // guarded by mu, and so is what follows
	what     string
	total    int
	told     time.Time
}

// tellEvery is the pause between two sentences in place of a bar.
const tellEvery = 10 * time.Second

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

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
	p.what, p.total, p.told = what, total, time.Now()
	if !p.terminal {
		return
	}
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
	} else if now := time.Now(); now.Sub(p.told) >= tellEvery {
		p.told = now
		fmt.Fprintf(p.w, "%s %d of %d %s\n", now.Format("15:04:05"), done, p.total, p.what)
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

// Package health says what keeps a process from its work right now. A loop that goes on
// trying reports its failure here, and /readyz, the metric monolith_problem and, by the
// role's heartbeat, the fleet show it until an attempt succeeds.
package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Problem is one thing that does not work.
type Problem struct {
	Name   string    // of what fails, short and from a bounded set: "partition ratings/3"
	Reason string    // a sentence
	Since  time.Time // of the first failure in a row
}

func (p Problem) String() string { return p.Name + ": " + p.Reason }

const (
	maxReason  = 300  // bytes of one reason
	maxSummary = 1000 // bytes of Summary, as container.Event's Validate allows
)

// State holds the problems of a process, or of one role in it. A nil State takes reports
// and keeps none. All methods may be called concurrently.
type State struct {
	set   *set
	scope string // "" or the name of a role, before each problem's name
}

type set struct {
	mu       sync.Mutex
	problems map[string]Problem // by scope and name
	desc     *prometheus.Desc
}

// New is the healthy state. It is a prometheus.Collector: monolith_problem{problem} is 1
// for each that lasts.
func New() *State {
	return &State{set: &set{problems: map[string]Problem{},
		desc: prometheus.NewDesc("monolith_problem", "1 while this keeps the process from its work; /readyz says why", []string{"problem"}, nil)}}
}

// Scope returns the part of the state that belongs to one role of the process. Problems
// of a scope are named "<role>: <name>" in the whole.
func (s *State) Scope(role string) *State {
	if s == nil {
		return nil
	}
	return &State{set: s.set, scope: s.scope + role + ": "}
}

// Fail reports that what is named does not work. It lasts until OK.
func (s *State) Fail(name string, err error) {
	if s == nil {
		return
	}
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	p, ok := s.set.problems[s.scope+name]
	if !ok {
		p = Problem{Name: s.scope + name, Since: time.Now()}
	}
	p.Reason = cut(err.Error(), maxReason)
	s.set.problems[p.Name] = p
}

// OK reports that what is named works.
func (s *State) OK(name string) {
	if s == nil {
		return
	}
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	delete(s.set.problems, s.scope+name)
}

// Clear drops every problem of the scope: its role has ended.
func (s *State) Clear() {
	if s == nil {
		return
	}
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	maps.DeleteFunc(s.set.problems, func(name string, _ Problem) bool { return strings.HasPrefix(name, s.scope) })
}

// Problems are those of the scope, sorted by name.
func (s *State) Problems() []Problem {
	if s == nil {
		return nil
	}
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	var out []Problem
	for _, name := range slices.Sorted(maps.Keys(s.set.problems)) {
		if strings.HasPrefix(name, s.scope) {
			out = append(out, s.set.problems[name])
		}
	}
	return out
}

// Summary is what a heartbeat tells of the scope's problems: a line of at most 1,000
// bytes without times, so that it only changes when the problems do; empty: all is well.
// Problems of the names in but are left out.
func (s *State) Summary(but ...string) string {
	var lines []string
	for _, p := range s.Problems() {
		if !slices.Contains(but, strings.TrimPrefix(p.Name, s.scope)) {
			lines = append(lines, strings.TrimPrefix(p.String(), s.scope))
		}
	}
	return cut(strings.Join(lines, "; "), maxSummary)
}

// Text lists the problems, one a line with how long it lasts, for /readyz.
func (s *State) Text(now time.Time) string {
	var b strings.Builder
	for _, p := range s.Problems() {
		fmt.Fprintf(&b, "%s (for %s)\n", p, now.Sub(p.Since).Round(time.Second))
	}
	return b.String()
}

// Describe implements prometheus.Collector.
func (s *State) Describe(ch chan<- *prometheus.Desc) { ch <- s.set.desc }

// Collect implements prometheus.Collector.
func (s *State) Collect(ch chan<- prometheus.Metric) {
	for _, p := range s.Problems() {
		ch <- prometheus.MustNewConstMetric(s.set.desc, prometheus.GaugeValue, 1, p.Name)
	}
}

// cut shortens s to at most n bytes of valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	const rest = "…"
	return strings.ToValidUTF8(s[:n-len(rest)], "") + rest
}

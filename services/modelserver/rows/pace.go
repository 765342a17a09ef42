package rows

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

const (
	// hedged is the part of a shard's lookups that may be sent once more, and saved how many of
	// them may be put by for a bad moment.
	hedged = 0.05
	saved  = 16
	// paceEvery is after how many answers their 95th percentile is taken anew, paceWeight the
	// number of answers above which earlier ones count half.
	paceEvery  = 64
	paceWeight = 1024
	// Answers are counted by their microseconds, in eight steps for each doubling.
	paceSteps   = 8
	paceBuckets = 26 * paceSteps
)

// pace is how fast a shard answers, whoever of its replicas does, and how many of its lookups
// may be sent to another replica too.
type pace struct {
	mu     sync.Mutex
	counts [paceBuckets]uint32
	total  uint32
	fresh  int           // since p95 was taken
	p95    time.Duration // 0: too few answers have come
	budget float64
}

// asked counts a lookup. Once it has taken longer than after, another replica may be asked; 0: none.
func (p *pace) asked() (after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = min(p.budget+hedged, saved)
	return p.p95
}

// hedge is true where one more lookup may be sent, and counts it.
func (p *pace) hedge() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget < 1 {
		return false
	}
	p.budget--
	return true
}

// answered counts an answer.
func (p *pace) answered(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[paceBucket(took)]++
	p.total++
	if p.fresh++; p.fresh < paceEvery {
		return
	}
	p.fresh = 0
	above := p.total / 20
	for k := paceBuckets - 1; k >= 0; k-- {
		if p.counts[k] > above {
			p.p95 = paceEdge(k)
			break
		}
		above -= p.counts[k]
	}
	if p.total < paceWeight {
		return
	}
	p.total = 0
	for k := range p.counts {
		p.counts[k] /= 2
		p.total += p.counts[k]
	}
}

// paceBucket is where an answer counts, paceEdge the longest that counts there.
func paceBucket(took time.Duration) int {
	us := uint64(max(took.Microseconds(), paceSteps))
	n := bits.Len64(us) - 4 // of the doublings above paceSteps
	return min(n*paceSteps+int(us>>n)-paceSteps, paceBuckets-1)
}

func paceEdge(bucket int) time.Duration {
	n, step := bucket/paceSteps, bucket%paceSteps
	return time.Duration((paceSteps+step+1)<<n) * time.Microsecond
}

const (
	// latencyShare is that of the newest answer in a replica's latency.
	latencyShare = 0.25
	// latencyFor is in what time a latency that nothing was heard of since counts for a third: a
	// replica that was slow is tried again.
	latencyFor = time.Second
	// alike is the latency below which replicas count as equally fast.
	alike = 256 * time.Microsecond
)

// latency is a replica's, as its newest answers show it.
type latency struct {
	mu   sync.Mutex
	mean float64 // nanoseconds
	at   time.Time
}

// took notes an answer, or that one did not come for so long.
func (l *latency) took(d time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() {
		l.mean = float64(d)
	} else {
		l.mean += latencyShare * (float64(d) - l.mean)
	}
	l.at = now
}

// class is 0 for what is fast, and one more for each doubling.
func (l *latency) class(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	mean := l.mean * math.Exp(-float64(now.Sub(l.at))/float64(latencyFor))
	return bits.Len64(uint64(mean) / uint64(alike))
}

package ensemble

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/prometheus/client_golang/prometheus"
)

// shownStuck bounds the paths that a status lists.
const shownStuck = 20

// Status is how the mirror stands.
type Status struct {
	Servers   []string `json:"servers"`
	Chroot    string   `json:"chroot,omitempty"`
	Roots     []string `json:"roots"`
	Bridge    bool     `json:"bridge"`
	Connected bool     `json:"connected"` // it mirrors right now
	Session   string   `json:"session,omitempty"`
	Seq       uint64   `json:"seq"` // of the log, up to which the ensemble is the same
	Lag       uint64   `json:"lag"` // events folded that the ensemble may not show yet

	Nodes    int       `json:"nodes"`    // compared by the last comparison of everything
	Held     int       `json:"held"`     // ephemerals held by the mirror at that time
	Compared time.Time `json:"compared"` // when it ended
	TookMS   int64     `json:"took_ms"`

	Drifts    int       `json:"drifts"` // nodes put right since the start
	LastDrift *Drift    `json:"last_drift,omitempty"`
	Imports   int       `json:"imports"` // foreign writes that became facts since the start
	Refused   int       `json:"refused"`
	Stuck     int       `json:"stuck"` // nodes that cannot be kept the same
	StuckAt   []Failure `json:"stuck_at,omitempty"`
}

// Drift is a node of the ensemble that had changed or gone by somebody else's hand.
type Drift struct {
	Path   string    `json:"path"`
	Repair string    `json:"repair"` // create, set, replace, remove or setACL
	At     time.Time `json:"at"`
}

// Failure is a node that cannot be kept the same, and why.
type Failure struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Status reports how the mirror stands; it may be asked at any time.
func (m *Mirror) Status() Status {
	lag := m.lag()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Servers, s.Chroot, s.Roots, s.Bridge = m.cfg.Servers, m.cfg.Chroot, m.cfg.Roots, m.cfg.Importer != nil
	s.Seq, s.Lag, s.Stuck = m.synced.Load(), uint64(lag), len(m.stuck)
	for path, f := range m.stuck {
		s.StuckAt = append(s.StuckAt, Failure{path, f.why})
	}
	slices.SortFunc(s.StuckAt, func(a, b Failure) int { return strings.Compare(a.Path, b.Path) })
	s.StuckAt = s.StuckAt[:min(len(s.StuckAt), shownStuck)]
	return s
}

// drifted notes what was put right, and says the first of many.
func (m *Mirror) drifted(all []Drift) {
	if len(all) == 0 {
		return
	}
	last := all[len(all)-1]
	m.mu.Lock()
	m.status.Drifts += len(all)
	m.status.LastDrift = &last
	m.mu.Unlock()
	m.drift.Add(float64(len(all)))
	m.logger.Warn("zookeeper ensemble had drifted and is put right", "nodes", len(all), "path", all[0].Path, "repair", all[0].Repair)
}

// stuck is a node that could not be kept the same.
type stuck struct {
	why   string
	times int
}

// stick notes that a node could not be kept the same, and says so when that is not over
// a moment later.
func (m *Mirror) stick(path, doing string, err error) {
	m.mu.Lock()
	was := m.stuck[path]
	if was.times > 0 || len(m.stuck) < maxDirty {
		m.stuck[path] = stuck{doing + ": " + err.Error(), was.times + 1}
	}
	m.mu.Unlock()
	if was.times != 1 {
		return
	}
	fix := "it is tried again and again; see what stands in its way"
	if errors.Is(err, zk.ErrNoAuth) {
		fix = "give the mirror an identity that may, such as the ensemble's super, with --zk-auth-file"
	}
	m.logger.Warn("zookeeper node cannot be kept the same", "path", path, "to", doing, "err", err, "fix", fix)
}

// loosen forgets what stood in the way of nodes that are the same now.
func (m *Mirror) loosen(paths []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.stuck) == 0 {
		return
	}
	for _, path := range paths {
		delete(m.stuck, path)
	}
}

// imported counts a foreign write by what came of it.
func (m *Mirror) imported(outcome string) {
	m.imports.WithLabelValues(outcome).Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch outcome {
	case "done":
		m.status.Imports++
	case "refused":
		m.status.Refused++
	}
}

func (m *Mirror) gauges() []prometheus.Collector {
	gauge := func(name, help string, of func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(m.Status()) })
	}
	seconds := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return float64(t.UnixMilli()) / 1000
	}
	return []prometheus.Collector{
		gauge("monolith_zk_mirror_lag_events", "Events folded that the ensemble may not show yet.", func(s Status) float64 { return float64(s.Lag) }),
		gauge("monolith_zk_mirror_nodes", "Nodes compared by the last comparison of everything.", func(s Status) float64 { return float64(s.Nodes) }),
		gauge("monolith_zk_mirror_held", "Ephemeral nodes that the mirror held in the ensemble at that comparison.", func(s Status) float64 { return float64(s.Held) }),
		gauge("monolith_zk_mirror_stuck_nodes", "Nodes of the ensemble that cannot be kept the same, for want of a right for example.", func(s Status) float64 { return float64(s.Stuck) }),
		gauge("monolith_zk_mirror_compared_timestamp_seconds", "When everything was last compared; 0: never.", func(s Status) float64 { return seconds(s.Compared) }),
		gauge("monolith_zk_mirror_last_drift_timestamp_seconds", "When a drifted node was last put right; 0: never.", func(s Status) float64 {
			if s.LastDrift == nil {
				return 0
			}
			return seconds(s.LastDrift.At)
		}),
	}
}

// began and ended note the term of a session.
func (m *Mirror) began(session int64) {
	m.held.Set(1)
	m.mu.Lock()
	m.status.Connected, m.status.Session = true, fmt.Sprintf("0x%x", session)
	m.mu.Unlock()
}

func (m *Mirror) ended() {
	m.held.Set(0)
	m.mu.Lock()
	m.status.Connected, m.status.Session = false, ""
	m.mu.Unlock()
}

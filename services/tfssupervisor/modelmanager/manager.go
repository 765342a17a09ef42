// Package modelmanager brings the versions of one model that another program downloads to this host, such as a
// rough-sort model, to the folder from which a model server serves them.
package modelmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
)

const (
	firstEvery = 10 * time.Second // between looks for a first version
	every      = 30 * time.Second // between looks for a newer one
	remain     = 5                // versions stay
	ownFile    = ".lock"          // in the model's folder, locked by the one manager that fills it
)

// Config of a manager.
type Config struct {
	// Model is brought from Source, where it is downloaded to, to Dest. All are required; the folder of the model in
	// Dest is the manager's own.
	Model, Source, Dest string
	// Wait is how long a first version may take. Default 20 min.
	Wait time.Duration
}

// Validate says what is missing.
func (c *Config) Validate() error {
	if c.Model == "" || strings.HasPrefix(c.Model, ".") || strings.ContainsAny(c.Model, `/\`) {
		return fmt.Errorf("%q cannot name a folder: give the model a plain name", c.Model)
	}
	if !filepath.IsAbs(c.Source) || !filepath.IsAbs(c.Dest) {
		return fmt.Errorf("model %s comes from %q to %q: give whole paths", c.Model, c.Source, c.Dest)
	}
	if within(c.Source, c.Dest) || within(c.Dest, c.Source) {
		return fmt.Errorf("model %s comes from %s to %s, one of which lies in the other: give each a folder of its own", c.Model, c.Source, c.Dest)
	}
	return nil
}

func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// Manager brings versions of a model while it runs.
type Manager struct {
	cfg    Config
	log    *slog.Logger
	ready  chan struct{}
	dir    *os.Root // the model's folder in Dest; set by Run
	newest atomic.Pointer[version]
	failed prometheus.Counter
}

// version is one that is here.
type version struct {
	number int64
	at     time.Time // when it came
}

// New checks cfg and starts nothing.
func New(cfg Config, log *slog.Logger, metrics prometheus.Registerer) (*Manager, error) {
	if cfg.Wait == 0 {
		cfg.Wait = 20 * time.Minute
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	const prefix = "data.monolith_serving.online."
	m := &Manager{cfg: cfg, log: log, ready: make(chan struct{})}
	labels := prometheus.Labels{"model": cfg.Model}
	since := func(name, help string, then func(version) time.Time) {
		prom.Register(metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help, ConstLabels: labels}, func() float64 {
			if v := m.newest.Load(); v != nil {
				return time.Since(then(*v)).Seconds()
			}
			return math.NaN()
		}))
	}
	since("version.delay", "Seconds since the newest version that is here was made.", func(v version) time.Time { return time.Unix(v.number, 0) })
	since("update.delay", "Seconds since it came.", func(v version) time.Time { return v.at })
	m.failed = prom.Register(metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "loop_once_failed",
		Help: "Looks for a newer version that failed.", ConstLabels: labels}))
	return m, nil
}

// Ready is closed once a version is here.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// Run brings the newest version that is downloaded, and whichever is newer later, until ctx ends.
// It returns an error where no first one comes in time.
func (m *Manager) Run(ctx context.Context) error {
	release, err := m.open()
	if err != nil {
		return err
	}
	defer release()
	if err := m.first(ctx); err != nil {
		return err
	}
	close(m.ready)
	for retry.Sleep(ctx, every) == nil {
		if err := m.look(ctx); err != nil && ctx.Err() == nil {
			m.failed.Inc()
			m.log.Warn("no newer version of the model could be brought; its servers go on with what they have", "model", m.cfg.Model, "err", err)
		}
	}
	return nil
}

// open has the model's folder be this manager's, and clears what an earlier one left unfinished.
func (m *Manager) open() (release func(), err error) {
	path := filepath.Join(m.cfg.Dest, m.cfg.Model)
	if err := durable.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(path, ownFile))
	if ours, err := lock.TryLock(); err != nil || !ours {
		return nil, errors.Join(fmt.Errorf("%s is filled by another agent: give each a rough_sort_model_local_path of its own", path), err)
	}
	if m.dir, err = os.OpenRoot(path); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	release = func() { _, _ = m.dir.Close(), lock.Close() }
	if err := modelcopy.Sweep(m.dir, versionDepth); err != nil {
		release()
		return nil, fmt.Errorf("clear unfinished copies: %w", err)
	}
	return release, nil
}

// first waits for the first version.
func (m *Manager) first(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, m.cfg.Wait)
	defer cancel()
	for {
		err := m.look(limited)
		if err == nil && m.newest.Load() != nil {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("there is no %s in %s", marker(m.cfg.Model, "<version>"), m.cfg.Source)
		}
		m.log.Info("waiting for a first version of the model", "model", m.cfg.Model, "reason", err)
		if retry.Sleep(limited, firstEvery) == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("no version of model %s came in %v: %w; look after the program that downloads it", m.cfg.Model, m.cfg.Wait, err)
	}
}

// look brings the newest version that is downloaded, unless it or a newer one came already.
func (m *Manager) look(ctx context.Context) error {
	if err := m.clearLocks(); err != nil {
		return err
	}
	number, err := m.downloaded()
	before := m.newest.Load()
	if err != nil || number == 0 || before != nil && number <= before.number {
		return err
	}
	if err := m.bring(ctx, number); err != nil {
		return fmt.Errorf("version %d: %w", number, err)
	}
	m.newest.Store(&version{number, time.Now()})
	m.log.Info("a version of the model is here", "model", m.cfg.Model, "version", number, "dir", m.dir.Name())
	return m.retain(number)
}

package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Source is the ratings of a run and what was wrong with their rows.
type Source struct {
	gen.Source
	name   string // in record headers; the same for a run that is resumed
	file   string // "" for the simulator
	Rows   int64  // broken ones included
	broken []rating.Broken
}

// OpenSource opens the ratings of a run: those of a file, or of the simulated audience.
func OpenSource(cfg Config) (*Source, error) {
	limit := int(cfg.Rate * cfg.duration.Seconds())
	if cfg.Data == "" {
		if limit == 0 {
			limit = int(cfg.Rate * 60)
		}
		sim, err := gen.NewSimulator(gen.SimulatorConfig{Seed: cfg.seed, Count: limit})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
		}
		return &Source{Source: sim, name: gen.SimulatorName(cfg.seed), Rows: int64(limit)}, nil
	}
	s := &Source{name: filepath.Base(cfg.Data), file: cfg.Data}
	f, err := gen.OpenCSV(cfg.Data, func(b rating.Broken) { s.broken = append(s.broken, b) })
	if err != nil {
		return nil, fmt.Errorf("%w (--data names a MovieLens ratings.csv; without it a simulated audience is used)", err)
	}
	s.Source, s.Rows = f, int64(f.Rows())
	if s.Total() == 0 {
		if len(s.broken) == 0 {
			return nil, fmt.Errorf("%s holds no rating: there is nothing below its header", cfg.Data)
		}
		return nil, fmt.Errorf("none of the %d rows of %s could be read as a rating; the first, line %d: %s", len(s.broken), cfg.Data, s.broken[0].Line, s.broken[0].Reason)
	}
	if limit > 0 && limit < s.Total() {
		s.Source, s.Rows = gen.Limit(f, limit), int64(limit+len(s.broken))
	}
	return s, nil
}

// ParkBroken keeps every broken row of the source with its reason. Parking again, after
// a restart, changes nothing.
func (s *Source) ParkBroken(ctx context.Context, letters bus.DeadLetters) error {
	for _, b := range s.broken {
		p := bus.Parked{Reason: b.Reason, By: "demo", Stream: "csv:" + s.name, StreamSeq: uint64(b.Line), Subject: host.RatingsTopic, Data: b.Raw}
		if _, err := letters.Park(ctx, p); err != nil {
			return fmt.Errorf("park line %d of %s: %w", b.Line, s.file, err)
		}
	}
	return nil
}

// sourceFile keeps, in the data folder, what the run was begun with.
const sourceFile = "source.json"

// pin refuses to go on with another source than the one that the folder's run was begun
// with: ratings are told apart by their place in it.
func (s *Source) pin(dir string) error {
	if s.file == "" {
		return nil // the simulator's name holds its seed
	}
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	now, err := json.Marshal(map[string]string{"name": s.name, "sha256": hex.EncodeToString(h.Sum(nil))})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, sourceFile)
	was, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return host.ReplaceFile(path, now)
	case err != nil:
		return err
	case !bytes.Equal(was, now):
		return fmt.Errorf("%w: %s was begun with another file than %s: name that one with --data, or another folder with --dir", flags.ErrUsage, dir, s.file)
	}
	return nil
}

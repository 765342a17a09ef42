// Package learning measures how well models learn, each claim by a protocol of its own, in one run:
//
//	TensorFlow   the same model, order and first values there: equal curves and AUC, ratings a second side by side
//	Sync         a served copy that is as new as its last synchronisation, on an audience whose tastes drift
//	Collisions   a row for each id beside ids hashed into fewer rows, epoch by epoch
//	Features     DeepFM with genres and history beside the two features of a user and a movie
//
// All of it is engine and tables in one process, by package replay; Write makes the page of it.
package learning

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/inspect"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/specfile"
	"github.com/monolith-go/monolith/loadtest/gen"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/replay"
	"github.com/monolith-go/monolith/loadtest/report"
)

// Config says what is measured. A protocol that lacks what it needs is left out, and said to be.
type Config struct {
	Ratings   string // MovieLens' ratings.csv, a movies.csv beside it; "": only what is simulated
	Python    string // an interpreter with TensorFlow; "": none
	Seeds     int    // of each protocol but TensorFlow's
	Simulated int    // ratings of an audience
	Epochs    int    // of Collisions
	Say       func(format string, args ...any)
}

// Result is what was measured; what was not is nil.
type Result struct {
	Started    time.Time         `json:"started"`
	Seconds    float64           `json:"seconds"`
	Machine    string            `json:"machine"`
	Load       report.Figure     `json:"load"` // threads that wanted a processor before the run
	Seeds      int               `json:"seeds"`
	Data       string            `json:"data"` // how many ratings of whom
	TensorFlow *TensorFlowResult `json:"tensorflow"`
	Sync       *SyncResult       `json:"sync"`
	Collisions *CollisionsResult `json:"collisions"`
	Features   *FeaturesResult   `json:"features"`
}

// Run measures all that it can.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	start := time.Now()
	res := &Result{Started: start.UTC(), Machine: report.Machine(), Load: load(), Seeds: cfg.Seeds}
	var err error
	cfg.Say("synchronisation: %d audiences of %d ratings", cfg.Seeds, cfg.Simulated)
	if res.Sync, err = Sync(ctx, cfg.Seeds, cfg.Simulated); err != nil {
		return nil, err
	}
	if cfg.Ratings == "" {
		cfg.Say("LEFT OUT: TensorFlow, collisions and features need MovieLens: name its ratings.csv with --ratings")
		res.Seconds = time.Since(start).Seconds()
		return res, nil
	}
	f, err := gen.OpenCSV(cfg.Ratings, nil)
	if err != nil {
		return nil, err
	}
	recs := records(f)
	res.Data = fmt.Sprintf("%d ratings", len(recs))
	if cfg.Python == "" {
		cfg.Say("LEFT OUT: no Python with TensorFlow is installed: run make oracles, or make peers")
	} else {
		cfg.Say("the same model in TensorFlow")
		if res.TensorFlow, err = TensorFlow(ctx, cfg.Python, recs); err != nil {
			return nil, err
		}
	}
	cfg.Say("collisions: %d seeds of %d epochs", cfg.Seeds, cfg.Epochs)
	if res.Collisions, err = Collisions(ctx, recs, cfg.Seeds, cfg.Epochs); err != nil {
		return nil, err
	}
	cfg.Say("genres and history: %d seeds", cfg.Seeds)
	if res.Features, err = Features(ctx, recs, cfg.Seeds); err != nil {
		return nil, err
	}
	res.Seconds = time.Since(start).Seconds()
	return res, nil
}

// records are a source's, with what was known when each happened.
func records(s gen.Source) []rating.Record {
	var all []rating.Rating
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		all = append(all, r)
	}
	return replay.Records(all, s.Catalog())
}

// ready is the ready model of that name.
func ready(name string, seed uint64) (*model.ModelSpec, error) {
	var text bytes.Buffer
	if err := inspect.Init("-", name, &text); err != nil {
		return nil, err
	}
	return parsed(text.Bytes(), seed)
}

func parsed(text []byte, seed uint64) (*model.ModelSpec, error) {
	spec, err := specfile.Parse(text)
	if err != nil {
		return nil, err
	}
	spec.Seed = seed
	return modelspec.Normalize(spec), nil
}

// load is how many threads wanted a processor in the last minute; unknown where no kernel says.
func load() report.Figure {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		if v, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64); err == nil {
			return report.Figure(v)
		}
	}
	return report.Unknown()
}

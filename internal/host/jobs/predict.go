package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// Predict writes what a checkpoint makes of files of records.
type Predict struct {
	Place
	Data
	To     string
	AsJSON bool
}

// Register binds the command's flags.
func (c *Predict) Register(fs *pflag.FlagSet) {
	c.Place.Register(fs)
	c.Data.Register(fs)
	fs.StringVar(&c.To, "to", "", "`file` for the scores, which must not be there yet; empty: standard output")
	fs.BoolVar(&c.AsJSON, "json", false, "write a JSON object for each sample, with the record's number and the scores by task")
}

// Validate complains about what no folder is needed for, and finds the files.
func (c *Predict) Validate() error { return errors.Join(c.Place.Validate(), c.Data.Validate()) }

// Run writes the scores: for each sample a line with one for each task, in the order of the records;
// for a record that the model cannot read a line with a dash, and a sentence to stderr.
func (c *Predict) Run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	s, err := c.find(ctx)
	if err != nil {
		return err
	}
	p, err := s.load(ctx)
	if err != nil {
		return err
	}
	if c.To != "" {
		f, err := os.OpenFile(c.To, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("write the scores: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		stdout = f
	}
	w := bufio.NewWriter(stdout)
	writer := scoreWriter{w: w, json: c.AsJSON, parameters: p}
	refused := func(r refused) error {
		_, err := fmt.Fprintf(stderr, "record %d: %s\n", r.Record, r.Reason)
		return err
	}
	use := func(b *runtime.Batch, first int64, records []int) error { return writer.batch(ctx, b, first, records) }
	if err := c.each(ctx, p, input.Options{Serving: true}, 0, use, refused); err != nil {
		return errors.Join(err, w.Flush())
	}
	return w.Flush()
}

// scoreWriter writes the scores of batches.
type scoreWriter struct {
	*parameters
	w      io.Writer
	json   bool
	scores [][]float32
	line   []byte
}

func (s *scoreWriter) batch(ctx context.Context, b *runtime.Batch, first int64, records []int) error {
	for i := range s.scores {
		s.scores[i] = s.scores[i][:0]
	}
	if b.Len() > 0 {
		lane, err := s.lanes.Get(ctx)
		if err != nil {
			return err
		}
		s.scores, err = s.engine.Score(lane, b, s.weights, s.scores)
		s.lanes.Put(lane)
		if err != nil {
			return err
		}
	}
	at := 0
	for i, samples := range records {
		if samples == 0 {
			if err := s.write(first+int64(i), -1); err != nil {
				return err
			}
		}
		for range samples {
			if err := s.write(first+int64(i), at); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// write writes the line of one sample; -1: of a record that has none.
func (s *scoreWriter) write(record int64, sample int) error {
	if s.json {
		line := struct {
			Record int64              `json:"record"`
			Scores map[string]float32 `json:"scores"` // null: the model cannot read the record
		}{Record: record}
		if sample >= 0 {
			line.Scores = map[string]float32{}
			for i, t := range s.engine.Tasks() {
				line.Scores[t.Name] = s.scores[i][sample]
			}
		}
		return json.NewEncoder(s.w).Encode(line)
	}
	s.line = s.line[:0]
	for i := range s.engine.Tasks() {
		if i > 0 {
			s.line = append(s.line, '\t')
		}
		if sample < 0 {
			s.line = append(s.line, '-')
			continue
		}
		s.line = strconv.AppendFloat(s.line, float64(s.scores[i][sample]), 'g', -1, 32)
	}
	_, err := s.w.Write(append(s.line, '\n'))
	return err
}

package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/input"
	"github.com/monolith-go/monolith/internal/input/files"
	"github.com/monolith-go/monolith/internal/model/runtime"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Data is the records of a command, in files.
type Data struct {
	Files       []string
	Format      string
	Container   string
	Compression string
	Batch       int // most records of one step

	format input.Format
	layout files.Layout
	paths  []string

	dropped int64 // samples, by the model's rules
}

// Register binds the flags that name files.
func (d *Data) Register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&d.Files, "files", nil, "`files` of records, here or of HDFS (hdfs://namenode:8020/…): paths, globs, {DATE(20260101,20260131)} and {INT(0,15)}, with commas between them, or @list, a file of these; repeatable")
	fs.StringVar(&d.Format, "format", input.JSON.String(), input.FormatUsage)
	fs.StringVar(&d.Container, "container", "auto", files.ContainerUsage)
	fs.StringVar(&d.Compression, "compression", "auto", files.CompressionUsage)
	fs.IntVar(&d.Batch, "batch", 64, "most records of one step")
}

// Validate finds the files.
func (d *Data) Validate() (err error) {
	if err := d.check(); err != nil {
		return err
	}
	if d.paths, err = files.Expand(d.Files); err != nil {
		return fmt.Errorf("%w: --files: %w", flags.ErrUsage, err)
	}
	return nil
}

// check complains about what no file is looked at for.
func (d *Data) check() (err error) {
	if d.format, err = input.ParseFormat(d.Format); err != nil {
		return fmt.Errorf("%w: --format: %w", flags.ErrUsage, err)
	}
	if d.layout, err = files.ParseLayout(d.format, d.Container, d.Compression); err != nil {
		return fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	if d.Batch < 1 || d.Batch > perStep {
		return fmt.Errorf("%w: --batch %d must be 1 to %d", flags.ErrUsage, d.Batch, perStep)
	}
	if len(d.Files) == 0 {
		return fmt.Errorf("%w: --files must name the records, as in --files 'part-*.tfrecord'", flags.ErrUsage)
	}
	return nil
}

// refused is a record that the model cannot read, and why.
type refused struct {
	Record int64  `json:"record"`
	Reason string `json:"reason"`
}

// each puts the records of all files, in order, into batches, and hands over each batch with its
// rows, the number of its first record, and how many samples each of its records has. It ends after
// so many steps of records; 0: with the files.
func (d *Data) each(ctx context.Context, p *parameters, options input.Options, steps int64, use func(*runtime.Batch, int64, []int) error, refuse func(refused) error) error {
	set, err := files.Survey(ctx, d.layout, d.paths, 1)
	if err != nil {
		return err
	}
	r := set.Open(0)
	defer r.Close()
	end := set.Ends(int64(d.Batch), steps)[0]
	options.Format = d.format
	f := filler{p: p, batch: p.engine.NewBatch(), decoder: input.New(p.engine.Spec(), options), use: use, refuse: refuse}
	defer func() { d.dropped = f.dropped }()
	for at := int64(0); ; {
		records, next, err := r.Fetch(ctx, at)
		if err != nil {
			return err
		}
		if at >= end {
			return f.flush()
		}
		records = records[:min(int64(len(records)), end-at)]
		for i, record := range records {
			if len(f.samples) >= d.Batch {
				if err := f.flush(); err != nil {
					return err
				}
			}
			if err := f.add(at+int64(i), record); err != nil {
				return err
			}
		}
		at = next
	}
}

// filler makes batches of records.
type filler struct {
	p       *parameters
	batch   *runtime.Batch
	decoder *input.Decoder
	first   int64 // record of the batch
	samples []int // by record
	dropped int64 // samples, by the model's rules
	use     func(*runtime.Batch, int64, []int) error
	refuse  func(refused) error
}

func (f *filler) add(n int64, record []byte) error {
	before, from := f.batch.Len(), input.Position{Offset: n}
	err := f.decoder.Into(f.batch, record, from)
	if errors.Is(err, runtime.ErrFull) && before > 0 {
		if err := f.flush(); err != nil {
			return err
		}
		before = 0
		err = f.decoder.Into(f.batch, record, from)
	}
	if len(f.samples) == 0 {
		f.first = n
	}
	f.samples = append(f.samples, f.batch.Len()-before)
	for _, dropped := range f.decoder.Dropped() {
		f.dropped += int64(dropped)
	}
	if err != nil {
		return f.refuse(refused{n, err.Error()})
	}
	return nil
}

// flush hands the batch over.
func (f *filler) flush() error {
	if len(f.samples) == 0 {
		return nil
	}
	if f.batch.Len() > 0 {
		if err := f.batch.Seal(); err != nil {
			return err
		}
		f.p.lookUp(f.batch)
	}
	err := f.use(f.batch, f.first, f.samples)
	f.batch.Reset()
	f.samples = f.samples[:0]
	return err
}

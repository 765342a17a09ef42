package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/vfs"
)

const maxState = 16 << 20

// record notes beside each sub-model's versions from which step this one came, as the original's exporters do.
func (x *Exported) record(ctx context.Context, to *staged) error {
	for _, sub := range x.SubModels {
		name := filepath.Join(sub, modelinfo.StateFile)
		if err := to.fetch(ctx, name); err != nil {
			return err
		}
		here := filepath.Join(to.here, name)
		old, err := vfs.ReadText(ctx, here, maxState)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		text, err := modelinfo.Record(old, vfs.Join(x.Dir, sub, strconv.FormatInt(x.Version, 10)), int64(x.Step))
		if err != nil {
			return fmt.Errorf("%s: %w", sub, err)
		}
		if err := durable.Replace(here, 0o644, func(f *os.File) error { _, err := f.Write(text); return err }); err != nil {
			return err
		}
		if err := to.replace(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// compress is how a table's numbers are to be served; "*" is every table.
type compress struct {
	table string
	kind  *model.Compressor
}

func parseCompress(given []string) (all []compress, err error) {
	for _, s := range given {
		name, kind, ok := strings.Cut(s, "=")
		kind, most, bounded := strings.Cut(kind, ":")
		c := &model.Compressor{}
		switch {
		case kind == "fp32" && !bounded:
			c.Kind = &model.Compressor_Fp32{Fp32: &model.Fp32{}}
		case kind == "fp16" && !bounded:
			c.Kind = &model.Compressor_Fp16{Fp16: &model.Fp16{}}
		case kind == "fixed_r8":
			r8 := &model.FixedR8{}
			if bounded {
				r, err := strconv.ParseFloat(most, 32)
				if ok = ok && err == nil && r > 0; ok {
					r8.R = proto.Float32(float32(r))
				}
			}
			c.Kind = &model.Compressor_FixedR8{FixedR8: r8}
		default:
			ok = false
		}
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: --compress %q must be TABLE=fp32, TABLE=fp16, TABLE=fixed_r8 or TABLE=fixed_r8:R; one_bit is learnt with its scale, and declared", flags.ErrUsage, s)
		}
		all = append(all, compress{name, c})
	}
	return all, nil
}

// compressed is spec whose tables are served so.
func compressed(spec *model.ModelSpec, kinds []compress) (*model.ModelSpec, error) {
	if len(kinds) == 0 {
		return spec, nil
	}
	spec = proto.CloneOf(spec)
	for _, c := range kinds {
		found := false
		for _, t := range spec.GetTables() {
			if c.table != t.GetName() && c.table != "*" {
				continue
			}
			found = true
			if len(t.GetSegments()) == 0 {
				t.Compressor = c.kind
			}
			for _, s := range t.GetSegments() {
				s.Compressor = c.kind
			}
		}
		if !found {
			return nil, fmt.Errorf("%w: --compress %s: model %q has no such table", flags.ErrUsage, c.table, spec.GetName())
		}
	}
	if _, err := modelspec.Compile(spec); err != nil {
		return nil, fmt.Errorf("--compress: %w", err)
	}
	return spec, nil
}

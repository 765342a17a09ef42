package checkpoint

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/kernels/table"
)

// Found is what lies in the folder of a shard.
type Found struct {
	Manifest Manifest
	Bytes    uint64 // of the manifest and the files that it names
	Rows     uint64 // of all tables
}

// InspectIn looks at the folder path below base, out of which nothing leads: each file that the manifest
// names is there. With deep every byte is verified, as ReadShardIn does, without any row held in memory;
// the manifest's word is taken else.
func InspectIn(ctx context.Context, base, path string, deep bool) (f Found, err error) {
	d, err := openFolder(base, path)
	if err != nil {
		return f, err
	}
	defer d.root.Close()
	if f.Manifest, err = d.readManifest(); err != nil {
		return f, err
	}
	names := []string{ManifestName}
	for name := range f.Manifest.Files {
		names = append(names, name)
	}
	for _, name := range names {
		info, err := d.root.Stat(name)
		if err != nil {
			return f, fmt.Errorf("look at checkpoint %s: %w", filepath.Join(d.dir, name), err)
		}
		f.Bytes += uint64(info.Size())
	}
	if !deep {
		for _, t := range f.Manifest.Tables {
			f.Rows += t.Rows
		}
		return f, nil
	}
	d.through = func(r io.Reader) io.Reader { return durable.UntilDone(ctx, r) }
	_, err = d.stream(func(*Shard) error { return nil }, func(_ *TableInfo, rows []table.Row) error {
		f.Rows += uint64(len(rows))
		return nil
	})
	return f, err
}

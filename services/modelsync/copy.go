package modelsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/internal/ckpt"
	"github.com/monolith-go/monolith/internal/durable"
)

const (
	manifestName = "manifest.json"
	maxManifest  = 16 << 20
	// Folders beginning so are not whole yet, or on their way out; a start sweeps them.
	unfinished = ".tmp-"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// copyModel brings source to dst: into a temporary folder beside it, verified, synced,
// and only then renamed. Stopped anywhere, dst is whole or not there. It returns the
// bytes that lie in dst.
func copyModel(ctx context.Context, source, dst string) (uint64, error) {
	info, err := os.Stat(source)
	if err != nil {
		return 0, fmt.Errorf("the source cannot be read: %w", err)
	}
	if !info.IsDir() {
		return 0, fmt.Errorf("the source %s is no folder", source)
	}
	parent := filepath.Dir(dst)
	if err := makeDirs(parent); err != nil {
		return 0, err
	}
	tmp, err := os.MkdirTemp(parent, unfinished+filepath.Base(dst)+"-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp) // nothing is left of it after the rename
	if err := copyTree(ctx, source, tmp); err != nil {
		return 0, err
	}
	if err := verify(ctx, tmp); err != nil {
		return 0, fmt.Errorf("the copy of %s is not what was exported: %w", source, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return 0, err
	}
	if err := os.RemoveAll(dst); err != nil { // only ever one that did not verify
		return 0, err
	}
	if err := os.Rename(tmp, dst); err != nil {
		return 0, err
	}
	if err := durable.SyncDir(parent); err != nil {
		return 0, err
	}
	size, err := ckpt.DirSize(dst)
	return uint64(size), err
}

// copyTree copies folders and regular files; links are followed, anything else refused.
func copyTree(ctx context.Context, source, dst string) error {
	children, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, c := range children {
		from, to := filepath.Join(source, c.Name()), filepath.Join(dst, c.Name())
		info, err := os.Stat(from)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			if err = os.Mkdir(to, 0o755); err == nil {
				err = copyTree(ctx, from, to)
			}
		case info.Mode().IsRegular():
			err = copyFile(ctx, from, to)
		default:
			err = fmt.Errorf("%s is neither a file nor a folder", from)
		}
		if err != nil {
			return err
		}
	}
	return durable.SyncDir(dst)
}

func copyFile(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, untilDone{ctx, in})
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if n != info.Size() {
		return fmt.Errorf("%s changed while it was copied: %d bytes where there were %d", from, n, info.Size())
	}
	return out.Sync()
}

// verify compares a folder with its own manifest: every file named is there with its
// checksum. A folder without one, which another system exported, passes.
func verify(ctx context.Context, dir string) error {
	raw, err := os.Open(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer raw.Close()
	var m struct {
		Files map[string]uint32 `json:"files"`
	}
	if err := json.NewDecoder(io.LimitReader(raw, maxManifest)).Decode(&m); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	for name, want := range m.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s names %q, which is not in the folder", manifestName, name)
		}
		got, err := checksum(ctx, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s has checksum %08x where %s says %08x", name, got, manifestName, want)
		}
	}
	return nil
}

func checksum(ctx context.Context, path string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, untilDone{ctx, f}); err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return h.Sum32(), nil
}

// whole says whether a copy lies at dir and is what it was.
func whole(ctx context.Context, dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && verify(ctx, dir) == nil
}

// untilDone ends a long copy when its context does.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// remove takes a copy away so that nobody sees half of it.
func remove(dir string) error {
	gone, err := os.MkdirTemp(filepath.Dir(dir), unfinished+"gone-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(gone)
	if err := os.Rename(dir, filepath.Join(gone, filepath.Base(dir))); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// sweep clears what earlier runs left unfinished below <dir>/<model>/<sub-model>/.
func sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*", "*", unfinished+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range left {
		if strings.HasPrefix(filepath.Base(path), unfinished) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// makeDirs is MkdirAll, with every new name on disk before it returns.
func makeDirs(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(parent)
}

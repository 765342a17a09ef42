package modelsync

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/durable"
)

const (
	manifestName = "manifest.json"
	maxManifest  = 16 << 20
	// maxDepth bounds folders within folders of one sub-model; exports have two.
	maxDepth = 32
	// Folders beginning so are not whole yet, or on their way out; a start sweeps them.
	unfinished = ".tmp-"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// copied is what lies in a copy.
type copied struct {
	export string // identity, as exportOf tells it
	size   uint64
}

// copyModel brings the folder source to place below root: into a temporary folder beside
// it, verified, synced, and only then renamed. Stopped anywhere, place is whole, as it
// was, or not there. It returns what lies there.
func copyModel(ctx context.Context, source string, root *os.Root, place string) (c copied, err error) {
	src, err := os.OpenRoot(source) // itself may be a link: what it names was planned
	if err != nil {
		return c, fmt.Errorf("the source cannot be read: %w", err)
	}
	defer src.Close()
	parent := filepath.Dir(place)
	if err := makeDirs(root, parent); err != nil {
		return c, err
	}
	tmp := filepath.Join(parent, unfinished+filepath.Base(place)+"-"+rand.Text())
	if err := root.Mkdir(tmp, 0o755); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, root.RemoveAll(tmp)) }() // after the rename it is not there, or the old one
	dst, err := root.OpenRoot(tmp)
	if err != nil {
		return c, err
	}
	defer dst.Close()
	if c.size, err = copyTree(ctx, src, dst, ".", 0); err != nil {
		return c, err
	}
	if err := verify(ctx, dst); err != nil {
		return c, fmt.Errorf("the copy of %s is not what was exported: %w", source, err)
	}
	if c.export, err = exportOf(dst); err != nil {
		return c, err
	}
	// What lies at place is damaged or of an export that was made anew under this name.
	aside := tmp + "-old"
	if err := root.Rename(place, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	defer func() { err = errors.Join(err, root.RemoveAll(aside)) }()
	if err := root.Rename(tmp, place); err != nil {
		return c, err
	}
	return c, syncDir(root, parent)
}

// copyTree copies the folder dir with what is in it. A link to a file within the source is
// copied as that file. A link that leaves the source would put files of the machine into
// a model, and one to a folder may have no end: both are refused.
func copyTree(ctx context.Context, src, dst *os.Root, dir string, depth int) (size uint64, err error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("%s is %d folders deep, at most %d are copied", filepath.Join(src.Name(), dir), depth, maxDepth)
	}
	children, err := fs.ReadDir(src.FS(), filepath.ToSlash(dir))
	if err != nil {
		return 0, err
	}
	for _, c := range children {
		name := filepath.Join(dir, c.Name())
		info, err := src.Stat(name)
		var n uint64
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s: %w", filepath.Join(src.Name(), name), err)
		case info.Mode().IsRegular():
			n, err = copyFile(ctx, src, dst, name)
		case !info.IsDir():
			err = fmt.Errorf("%s is neither a file nor a folder", filepath.Join(src.Name(), name))
		case c.Type()&fs.ModeSymlink != 0:
			err = fmt.Errorf("%s is a link to a folder: export the folder itself", filepath.Join(src.Name(), name))
		default:
			if err = dst.Mkdir(name, 0o755); err == nil {
				n, err = copyTree(ctx, src, dst, name, depth+1)
			}
		}
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, syncDir(dst, dir)
}

func copyFile(ctx context.Context, src, dst *os.Root, name string) (size uint64, err error) {
	in, err := src.Open(name)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, err
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, untilDone{ctx, in})
	if err != nil {
		return 0, fmt.Errorf("copy %s: %w", in.Name(), err)
	}
	if n != info.Size() {
		return 0, fmt.Errorf("%s changed while it was copied: %d bytes where there were %d", in.Name(), n, info.Size())
	}
	return uint64(n), out.Sync()
}

// exportOf identifies what was exported into the folder dir: the SHA-256 of its manifest,
// which holds a checksum of every file. "" for a folder without one.
func exportOf(dir *os.Root) (string, error) {
	f, err := dir.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxManifest)); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// verify compares a folder with its own manifest: every file named is there with its
// checksum. A folder without one, which another system exported, passes.
func verify(ctx context.Context, dir *os.Root) error {
	raw, err := dir.Open(manifestName)
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
		got, err := checksum(ctx, dir, name)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s has checksum %08x where %s says %08x", name, got, manifestName, want)
		}
	}
	return nil
}

func checksum(ctx context.Context, dir *os.Root, name string) (uint32, error) {
	f, err := dir.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, untilDone{ctx, f}); err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return h.Sum32(), nil
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

// makeDirs is MkdirAll, with every new name on disk before it returns.
func makeDirs(root *os.Root, dir string) error {
	if info, err := root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDirs(root, parent); err != nil {
			return err
		}
	}
	if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(root, parent)
}

// syncDir is durable.SyncDir for a folder below root.
func syncDir(root *os.Root, dir string) error {
	return durable.SyncDir(filepath.Join(root.Name(), dir))
}

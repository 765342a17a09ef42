package modelsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// outcomes of bringing a sub-model here, as metrics name them.
type how string

const (
	lay         how = "found"
	copiedHere  how = "copied"
	fetchedHere how = "fetched"
)

// whole makes sure that t lies at its place: because it lies there already, by a copy of its source
// on this host, or else from other hosts.
func (s *Server) whole(ctx context.Context, dir *os.Root, t target, seen *copied) (copied, how, error) {
	// An export may have been made anew in the same folder, under the same version.
	exports, sources := s.known(t)
	here, sourceErr := sourceExport(t.source)
	if sourceErr == nil {
		exports = []string{here}
	}
	c, there := found(ctx, dir, t.place(), seen)
	// Where neither the source can be read nor a fact tells what was exported, a copy that is
	// whole is taken as it is.
	if there && (len(exports) == 0 || slices.Contains(exports, c.export)) {
		return c, lay, nil
	}
	if sourceErr == nil || !errors.Is(sourceErr, fs.ErrNotExist) || len(sources) == 0 || s.client == nil {
		c, err := copyModel(ctx, t.source, dir, t.place())
		return c, copiedHere, err
	}
	sources, beyond := s.client.MayAsk(sources)
	if len(sources) == 0 {
		return c, fetchedHere, fmt.Errorf("%s is not on this host, and no other one is asked: %w", t.source, beyond)
	}
	c, err := s.fetch(ctx, dir, t, exports, sources)
	if err != nil {
		err = errors.Join(err, beyond)
	}
	return c, fetchedHere, err
}

// copied is what lies in a copy.
type copied struct {
	export string // its identity
	size   uint64
}

// copyModel brings the folder source to place below dir. Stopped anywhere, place is whole, as it was, or not there.
func copyModel(ctx context.Context, source string, dir *os.Root, place string) (copied, error) {
	staged, err := modelcopy.Stage(ctx, source, dir, place)
	if err != nil {
		return copied{}, err
	}
	if err := staged.Install(); err != nil {
		return copied{}, errors.Join(err, staged.Drop())
	}
	return copied{staged.Export, staged.Size}, nil
}

// known is what facts tell of t: the identities of what was exported, none where no fact says, and
// the other hosts that may hand it out, first those whose copy is of t.
func (s *Server) known(t target) (exports []string, sources []peer.Source) {
	s.lineage.Read(func(l lineage.State) {
		for _, part := range l.Exported(t.origin, t.sub, t.version) {
			exports = append(exports, part.GetExport())
		}
		var others []peer.Source
		for host, x := range l.Sources {
			if host == s.cfg.Host {
				continue
			}
			offered := x.Offered.V
			from := peer.Source{Host: host, Address: offered.GetAddress()}
			if l.Copies[t.key(host)].V.GetSource() == t.source {
				sources = append(sources, from)
			} else if slices.ContainsFunc(offered.GetFolders(), func(folder string) bool { return within(folder, t.source) }) {
				others = append(others, from)
			}
		}
		byHost := func(a, b peer.Source) int { return strings.Compare(a.Host, b.Host) }
		slices.SortFunc(sources, byHost)
		slices.SortFunc(others, byHost)
		sources = append(sources, others...)
	})
	return exports, sources
}

// within says whether path lies in folder.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}

// fetch brings t from other hosts into a folder beside its place, whose name tells the content, so
// that a fetch that was stopped goes on where it was; verified and synced, that is renamed.
func (s *Server) fetch(ctx context.Context, dir *os.Root, t target, exports []string, sources []peer.Source) (c copied, err error) {
	offer, err := s.client.Find(ctx, peer.Ask{Model: t.model, Sub: t.sub, Version: t.version, Dir: t.origin}, exports, sources)
	if err != nil {
		return c, fmt.Errorf("%s is not on this host, and no other one has it: %w", t.source, err)
	}
	parent := filepath.Dir(t.place())
	if err := modelcopy.MakeDirs(dir, parent); err != nil {
		return c, err
	}
	name := partOf(t.version) + offer.Digest()[:16]
	if err := dropParts(dir, parent, t.version, name); err != nil {
		return c, err
	}
	tmp := filepath.Join(parent, name)
	if err := dir.Mkdir(tmp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return c, err
	}
	dst, err := dir.OpenRoot(tmp)
	if err != nil {
		return c, err
	}
	defer dst.Close()
	if err := s.client.Fetch(ctx, dst, offer); err != nil {
		return c, fmt.Errorf("fetch %s: %w", t.source, err)
	}
	c = copied{export: offer.Export, size: offer.Size()}
	return c, modelcopy.Install(dir, tmp, t.place())
}

// part begins the names of folders that a fetch has not filled yet. A start leaves them.
const part = ".part-"

// partOf begins the names of those of a version.
func partOf(version int64) string { return part + strconv.FormatInt(version, 10) + "-" }

// dropParts removes what was fetched of a version, but for the folder keep.
func dropParts(dir *os.Root, parent string, version int64, keep string) error {
	entries, err := fs.ReadDir(dir.FS(), filepath.ToSlash(parent))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partOf(version)) && e.Name() != keep {
			err = errors.Join(err, dir.RemoveAll(filepath.Join(parent, e.Name())))
		}
	}
	return err
}

// sourceExport is the identity of what lies in the folder source.
func sourceExport(source string) (string, error) {
	dir, err := os.OpenRoot(source)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	return checkpoint.Identity(dir.FS())
}

// Package parts brings parts of checkpoints and exports to this machine's disk, from hosts of which facts say that they hand
// them out.
package parts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// Fetcher brings parts into a folder of this machine.
type Fetcher struct {
	Dir    string       // in which they take the places that they have in the job's folder
	Client *peer.Client // nil: nothing is fetched
	Log    *slog.Logger
}

// Sources are the hosts that hand out the folder which path is in, by name.
func Sources(l lineage.State, path string) (all []peer.Source) {
	for host, x := range l.Sources {
		if slices.ContainsFunc(x.Offered.V.GetFolders(), func(folder string) bool {
			rel, err := filepath.Rel(folder, path)
			return err == nil && filepath.IsLocal(rel)
		}) {
			all = append(all, peer.Source{Host: host, Address: x.Offered.V.GetAddress()})
		}
	}
	slices.SortFunc(all, func(a, b peer.Source) int { return strings.Compare(a.Host, b.Host) })
	return all
}

// Part brings a part of a checkpoint of the job whose folder facts call dir. One fetch of a part into a folder runs at a
// time; one that had to wait takes what the one before it brought.
func (f Fetcher) Part(ctx context.Context, dir string, part *training.ShardFile, sources []peer.Source) error {
	if err := peer.CheckPart(part.GetPath()); err != nil {
		return err
	}
	var known []string
	if part.GetManifest() != "" {
		known = append(known, part.GetManifest())
	}
	place := filepath.FromSlash(part.GetPath())
	return f.bring(ctx, peer.Ask{Dir: dir, Part: part.GetPath()}, place, known, sources, func(at string) (wrong, err error) {
		return f.compare(ctx, at, part.GetHash())
	})
}

// bring has what is asked for take its place once every byte is verified. It goes into a folder whose name tells the
// content, so that a fetch that was stopped goes on where it was. fits tells how what lies at a path differs from what is
// wanted, or that it cannot be looked at.
func (f Fetcher) bring(ctx context.Context, ask peer.Ask, place string, known []string, sources []peer.Source, fits func(at string) (wrong, err error)) (err error) {
	if f.Client == nil || len(sources) == 0 {
		return errors.New("no other host hands it out (model-sync --transfer-listen and --exports do)")
	}
	asked, beyond := f.Client.MayAsk(sources)
	if len(asked) == 0 {
		return beyond
	}
	offer, err := f.Client.Find(ctx, ask, known, asked)
	if err != nil {
		return errors.Join(fmt.Errorf("no other host has it: %w", err), beyond)
	}
	if err := durable.MkdirAll(filepath.Join(f.Dir, filepath.Dir(place)), 0o755); err != nil {
		return err
	}
	mark := filepath.Join(filepath.Dir(place), ".part-"+filepath.Base(place))
	unlock, err := durable.Lock(ctx, filepath.Join(f.Dir, mark+".lock"))
	if err != nil {
		return fmt.Errorf("wait for another fetch of %s: %w", place, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if wrong, err := fits(place); err != nil || wrong == nil { // another fetch has brought it
		return err
	}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tmp := mark + "-" + offer.Digest()[:16]
	f.Log.Info("a part of a checkpoint is fetched", "part", place, "bytes", offer.Size(), "sources", len(offer.Sources))
	if err := f.into(ctx, root, tmp, offer); err != nil {
		return fmt.Errorf("fetch %s: %w", place, err)
	}
	wrong, err := fits(tmp)
	if err != nil {
		return err
	}
	if wrong != nil {
		return fmt.Errorf("what other hosts have of %s is not what was written: %w", place, errors.Join(wrong, root.RemoveAll(tmp)))
	}
	return modelcopy.Install(root, tmp, place) // in place of what is damaged
}

// compare reads every byte of the part at path: wrong is how it differs from what was written, err that it could
// not be looked at.
func (f Fetcher) compare(ctx context.Context, path, hash string) (wrong, err error) {
	found, err := checkpoint.InspectIn(ctx, f.Dir, path, true)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case Damaged(err):
		return err, nil
	case err != nil:
		return nil, err
	case found.Manifest.Hash != hash:
		return fmt.Errorf("it hashes to %s, the fact says %s", found.Manifest.Hash, hash), nil
	}
	return nil, nil
}

// Damaged says whether err is of what lies on the disk. Any other may pass, as a lack of file descriptors does.
func Damaged(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoint.ErrCorrupt)
}

func (f Fetcher) into(ctx context.Context, root *os.Root, tmp string, offer peer.Offer) error {
	if err := root.Mkdir(tmp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dst, err := root.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer dst.Close()
	return f.Client.Fetch(ctx, dst, offer)
}

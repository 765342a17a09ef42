package ps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/process/prom"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/modelcopy"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// transfers makes what fetches need; without authorities nothing is fetched.
func (s *Server) transfers() error {
	keys, near, err := peer.Keys(s.cfg.TransferTLS, s.env.TLS, s.cfg.InsecureTransfer)
	if errors.Is(err, peer.ErrNoAuthorities) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	s.client = peer.NewClient(peer.Config{TLS: keys, Near: near, Log: s.log,
		Fetched: prom.Register(s.env.Metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: "monolith_ps_fetched_bytes_total",
			Help: "Bytes of checkpoints that other hosts sent, those that were not used included."})),
		Faults: prom.Register(s.env.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monolith_ps_fetch_faults_total",
			Help: "Answers of other hosts that were of no use, by reason: unreachable, or corrupt (not what was written)."}, []string{"reason"}))})
	return nil
}

// sources are the hosts that hand out the folder which path is in, by name.
func (s *Server) sources(path string) (all []peer.Source) {
	s.lineage.Read(func(l lineage.State) {
		for host, x := range l.Sources {
			if slices.ContainsFunc(x.Offered.V.GetFolders(), func(folder string) bool {
				rel, err := filepath.Rel(folder, path)
				return err == nil && filepath.IsLocal(rel)
			}) {
				all = append(all, peer.Source{Host: host, Address: x.Offered.V.GetAddress()})
			}
		}
	})
	slices.SortFunc(all, func(a, b peer.Source) int { return strings.Compare(a.Host, b.Host) })
	return all
}

// fetchPart brings a part of a checkpoint from a host that has it onto this machine's disk. It goes into a folder
// whose name tells the content, so that a fetch that was stopped goes on where it was; that takes the part's
// place once every byte is verified. One fetch of a part into a folder runs at a time; one that had to wait takes
// what the one before it brought.
func (s *Server) fetchPart(ctx context.Context, dir string, f *training.ShardFile) (err error) {
	if err := peer.CheckPart(f.GetPath()); err != nil {
		return err
	}
	sources := s.sources(filepath.Join(dir, filepath.FromSlash(f.GetPath())))
	if s.client == nil || len(sources) == 0 {
		return errors.New("no other host hands it out (model-sync --transfer-listen and --exports do)")
	}
	asked, beyond := s.client.MayAsk(sources)
	if len(asked) == 0 {
		return beyond
	}
	var known []string
	if f.GetManifest() != "" {
		known = append(known, f.GetManifest())
	}
	offer, err := s.client.Find(ctx, peer.Ask{Dir: dir, Part: f.GetPath()}, known, asked)
	if err != nil {
		return errors.Join(fmt.Errorf("no other host has it: %w", err), beyond)
	}
	if err := durable.MkdirAll(filepath.Join(s.cfg.Dir, filepath.Dir(f.GetPath())), 0o755); err != nil {
		return err
	}
	place := filepath.FromSlash(f.GetPath())
	mark := filepath.Join(filepath.Dir(place), ".part-"+filepath.Base(place))
	unlock, err := durable.Lock(ctx, filepath.Join(s.cfg.Dir, mark+".lock"))
	if err != nil {
		return fmt.Errorf("wait for another fetch of %s: %w", f.GetPath(), err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if wrong, err := s.compare(ctx, place, f.GetHash()); err != nil || wrong == nil { // another fetch has brought it
		return err
	}
	root, err := os.OpenRoot(s.cfg.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tmp := mark + "-" + offer.Digest()[:16]
	s.log.Info("a part of a checkpoint is fetched", "part", f.GetPath(), "bytes", offer.Size(), "sources", len(offer.Sources))
	if err := s.fetchInto(ctx, root, tmp, offer); err != nil {
		return fmt.Errorf("fetch %s: %w", f.GetPath(), err)
	}
	wrong, err := s.compare(ctx, tmp, f.GetHash())
	if err != nil {
		return err
	}
	if wrong != nil {
		return fmt.Errorf("what other hosts have of %s is not what was written: %w", f.GetPath(), errors.Join(wrong, root.RemoveAll(tmp)))
	}
	return modelcopy.Install(root, tmp, place) // in place of what is damaged
}

// compare reads every byte of the part at path: wrong is how it differs from what was written, err that it could
// not be looked at.
func (s *Server) compare(ctx context.Context, path, hash string) (wrong, err error) {
	found, err := checkpoint.InspectIn(ctx, s.cfg.Dir, path, true)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case damaged(err):
		return err, nil
	case err != nil:
		return nil, err
	case found.Manifest.Hash != hash:
		return fmt.Errorf("it hashes to %s, the fact says %s", found.Manifest.Hash, hash), nil
	}
	return nil, nil
}

// damaged says whether err is of what lies on the disk. Any other may pass, as a lack of file descriptors does.
func damaged(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoint.ErrCorrupt)
}

func (s *Server) fetchInto(ctx context.Context, root *os.Root, tmp string, offer peer.Offer) error {
	if err := root.Mkdir(tmp, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dst, err := root.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer dst.Close()
	return s.client.Fetch(ctx, dst, offer)
}

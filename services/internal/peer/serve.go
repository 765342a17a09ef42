package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
)

// Ask names a sub-model's version and where it was exported to.
type Ask struct {
	Model, Sub string
	Version    int64
	Dir        string // the exported_models folder, as the plan names it

	// Part is a shard's part of a checkpoint below Dir, the job's folder, as model.ckpt-3/ps_0; the others are
	// empty then.
	Part string
}

const (
	listingPath = "/v1/listing"
	filePath    = "/v1/file"
)

func (a Ask) query() url.Values {
	if a.Part != "" {
		return url.Values{"dir": {a.Dir}, "part": {a.Part}}
	}
	return url.Values{"model": {a.Model}, "sub": {a.Sub}, "version": {strconv.FormatInt(a.Version, 10)}, "dir": {a.Dir}}
}

func askOf(q url.Values) (a Ask, err error) {
	if q.Has("part") {
		a = Ask{Dir: q.Get("dir"), Part: q.Get("part")}
		if err = CheckPart(a.Part); a.Dir == "" {
			err = errors.New("name a dir")
		}
		return a, err
	}
	a = Ask{Model: q.Get("model"), Sub: q.Get("sub"), Dir: q.Get("dir")}
	a.Version, err = strconv.ParseInt(q.Get("version"), 10, 64)
	if err != nil || a.Model == "" || a.Sub == "" || a.Dir == "" {
		return a, errors.New("name a model, sub, version and dir")
	}
	return a, nil
}

// CheckPart refuses what is no shard's part of a checkpoint.
func CheckPart(path string) error {
	if !checkpoint.IsPart(path) {
		return fmt.Errorf("%.80q is no part of a checkpoint, which are called %s", path, checkpoint.Part(3, 0))
	}
	return nil
}

// ErrNotHere is returned for what does not lie on this host, or is not to be handed out.
var ErrNotHere = errors.New("it does not lie here")

// Server hands out folders to hosts that may ask.
type Server struct {
	// Open is the folder that an Ask names, confined to it, or ErrNotHere.
	Open func(Ask) (*os.Root, error)
	Log  *slog.Logger
	Sent prometheus.Counter // bytes of files

	listing chan struct{} // holds a place for each listing that is made
	sending chan struct{} // and for each file
}

const (
	// maxSent bounds the ranges that are sent at one time.
	maxSent = 64
	// maxListed bounds the listings that are made at one time, which may read whole files.
	maxListed = 2
	// stall is how long a connection may take nothing.
	stall = 30 * time.Second
)

// Handler answers listings and ranges of files.
func (s *Server) Handler() http.Handler {
	s.listing, s.sending = make(chan struct{}, maxListed), make(chan struct{}, maxSent)
	m := http.NewServeMux()
	m.HandleFunc("GET "+listingPath, s.with(s.list))
	m.HandleFunc("GET "+filePath, s.with(s.file))
	return m
}

func (s *Server) with(answer func(http.ResponseWriter, *http.Request, *os.Root) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		patient(w)
		ask, err := askOf(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		dir, err := s.Open(ask)
		if err == nil {
			defer dir.Close()
			err = answer(w, r, dir)
		}
		switch {
		case err == nil, r.Context().Err() != nil:
		case errors.Is(err, ErrNotHere), errors.Is(err, fs.ErrNotExist):
			http.Error(w, "this host does not have it", http.StatusNotFound)
		default:
			s.Log.Warn("a folder could not be handed out", "model", ask.Model, "sub_model", ask.Sub, "version", ask.Version, "err", err)
			http.Error(w, "it cannot be read here", http.StatusInternalServerError)
		}
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, dir *os.Root) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-r.Context().Done():
		return nil
	}
	l, err := list(r.Context(), dir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	patient(w)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // who asked has gone
	return nil
}

// list says what lies in dir. Checksums are those of the manifest; files that it does not name
// are read.
func list(ctx context.Context, dir *os.Root) (l Listing, err error) {
	manifest, err := checkpoint.ManifestText(dir.FS())
	if err != nil {
		return l, err
	}
	l.Export = checkpoint.IdentityOf(manifest)
	var sums map[string]uint32
	if manifest != nil {
		if sums, err = checkpoint.Checksums(manifest); err != nil {
			return l, err
		}
	}
	var walk func(at string) error
	walk = func(at string) error {
		children, err := fs.ReadDir(dir.FS(), at)
		if err != nil {
			return err
		}
		for _, c := range children {
			f := File{Name: path.Join(at, c.Name())}
			if err := checkName(f.Name); err != nil {
				return err
			}
			info, err := dir.Stat(f.Name)
			switch {
			case err != nil:
				return err
			case info.IsDir() && c.Type()&fs.ModeSymlink == 0:
				if err := walk(f.Name); err != nil {
					return err
				}
				continue
			case !info.Mode().IsRegular():
				return fmt.Errorf("%q is neither a file nor a folder", f.Name)
			case len(l.Files) == maxFiles:
				return fmt.Errorf("the folder holds more than %d files", maxFiles)
			}
			f.Size = info.Size()
			var known bool
			if f.CRC32C, known = sums[f.Name]; !known {
				if f.CRC32C, err = checkpoint.FileSum(ctx, dir.FS(), f.Name); err != nil {
					return err
				}
			}
			l.Files = append(l.Files, f)
		}
		return nil
	}
	if err := walk("."); err != nil {
		return l, err
	}
	slices.SortFunc(l.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return l, l.check()
}

func (s *Server) file(w http.ResponseWriter, r *http.Request, dir *os.Root) error {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	default:
		http.Error(w, "this host sends to enough others", http.StatusServiceUnavailable)
		return nil
	}
	name := r.URL.Query().Get("name")
	if err := checkName(name); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil
	}
	f, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return ErrNotHere
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(&counted{w, s.Sent}, r, "", time.Time{}, f)
	return nil
}

// patient has what is written next give up on who takes nothing any more. The deadline stays with
// the connection, so each answer sets its own.
func patient(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall)) // a writer that has none waits
}

// counted counts what was sent.
type counted struct {
	http.ResponseWriter
	sent prometheus.Counter
}

func (c *counted) Write(p []byte) (int, error) {
	patient(c.ResponseWriter)
	n, err := c.ResponseWriter.Write(p)
	c.sent.Add(float64(n))
	return n, err
}

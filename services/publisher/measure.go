package publisher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
)

// remembered bounds the exports, and the folders, of a scale.
const remembered = 4096

// export is one version of an exported_models folder, at one checkpoint.
type export struct {
	dir, ckpt string
	version   int64
}

// scale measures exports, once each, since they never change.
type scale struct {
	every time.Duration                                      // between two looks for newer versions in one folder
	told  func(dir string) map[int64]*training.ModelExported // what facts say of a folder's exports, by version
	sizes map[export]map[string]uint64
	last  map[export]sighting // by folder and checkpoint
}

type sighting struct {
	at      time.Time
	version int64
}

func newScale(every time.Duration, told func(dir string) map[int64]*training.ModelExported) scale {
	return scale{every: every, told: told, sizes: map[export]map[string]uint64{}, last: map[export]sighting{}}
}

// weigh returns the load as it is to be planned, with the sizes of its sub-models, or why
// they are not known. A load that follows its export is planned in the newest version
// that every sub-model has, and never in one older than floor.
func (s *scale) weigh(load *model.Load, floor int64) (*model.Load, map[string]uint64, string) {
	if load == nil {
		return nil, nil, ""
	}
	at := export{load.GetModelDir(), load.GetCkpt(), load.GetVersion()}
	if load.GetFollow() {
		at.version = max(at.version, floor)
		if newer := s.newest(at); newer > at.version {
			at.version = newer
		}
		if at.version != load.GetVersion() {
			load = proto.CloneOf(load) // the view's own must not change
			load.Version = at.version
		}
	}
	if sizes, ok := s.sizes[at]; ok {
		return load, sizes, ""
	}
	sizes, err := s.measure(at)
	if err != nil {
		problem := fmt.Sprintf("the export cannot be measured: %v: bring it back or load another version", err)
		return load, nil, strings.ToValidUTF8(problem, "?") // files may have any name
	}
	if len(s.sizes) >= remembered {
		clear(s.sizes) // measured again when needed
	}
	s.sizes[at] = sizes
	return load, sizes, ""
}

// measure sizes the sub-models of a version as they lie on this host or, where it does not have all of
// them, as the facts tell: exports travel from host to host. It may be called at any time.
func (s *scale) measure(at export) (map[string]uint64, error) {
	sizes := map[string]uint64{}
	if e := s.told(at.dir)[at.version]; e != nil && !here(at.dir, e) {
		for sub, part := range e.GetParts() {
			sizes[sub] = part.GetBytes()
		}
		return sizes, nil
	}
	subs, _, _, err := modelinfo.CalculateVersion(at.dir, at.ckpt, at.version)
	for sub, m := range subs {
		sizes[sub] = uint64(m.Size)
	}
	return sizes, err
}

// here says that every sub-model of an export is on this host.
func here(dir string, e *training.ModelExported) bool {
	return !slices.ContainsFunc(e.GetSubModels(), func(sub string) bool {
		_, err := os.Stat(filepath.Join(dir, sub, strconv.FormatInt(e.GetVersion(), 10)))
		return err != nil
	})
}

// newest looks into the folder, at most once in a while, and at what facts tell of it. 0 where neither
// names a version: what is planned stays then.
func (s *scale) newest(at export) int64 {
	at.version = 0
	if seen, ok := s.last[at]; ok && time.Since(seen.at) < s.every {
		return seen.version
	}
	var last *training.ModelExported
	if at.ckpt == "" {
		for v, e := range s.told(at.dir) {
			if last == nil || v > last.GetVersion() {
				last = e
			}
		}
	}
	version := last.GetVersion()
	if last == nil || here(at.dir, last) { // else this host has a part of the folder, or nothing
		if _, _, found, err := modelinfo.Calculate(at.dir, at.ckpt); err == nil {
			version = max(version, found)
		}
	}
	if len(s.last) >= remembered {
		clear(s.last)
	}
	s.last[at] = sighting{time.Now(), version}
	return version
}

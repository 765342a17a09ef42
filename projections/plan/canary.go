package plan

import (
	"path/filepath"
	"strconv"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/publish"
)

// Canary is another version of a model beside the planned one.
type Canary struct {
	Declared    events.JSON[*publish.CanaryDeclared] `json:"declared,omitzero"`
	DeclaredSeq uint64                               `json:"declared_seq"`
	Decided     events.JSON[*publish.CanaryDecided]  `json:"decided,omitzero"` // nil V: it runs
}

// Running is the canary that is not decided, nil where there is none or nothing is planned.
func (p Plan) Running() *publish.CanaryDeclared {
	if p.Planned.V == nil || p.Canary.Decided.V != nil {
		return nil
	}
	return p.Canary.Declared.V
}

// Candidate is the version to be kept beside the planned one; 0: none.
func (p Plan) Candidate() int64 {
	if v := p.Running().GetCandidate(); v != p.Planned.V.GetVersion() {
		return v
	}
	return 0
}

// Avoided is the version that answers nobody who does not ask for it: the candidate of the
// newest canary, unless it is what is planned. It is avoided after a rollback too, since
// servers hold it for some time still. 0: none.
func (p Plan) Avoided() int64 {
	v := p.Canary.Declared.V.GetCandidate()
	if p.Canary.Decided.V.GetVerdict() == publish.CanaryDecided_PROMOTED || v == p.Planned.V.GetVersion() {
		return 0
	}
	return v
}

// Stable is the version to which the canaries of the load at seq have led: the newest one's candidate
// where that was promoted, else what it was declared beside, which one before it may have put there.
// 0: the load has had none.
func (p Plan) Stable(seq uint64) int64 {
	c := p.Canary.Declared.V
	switch {
	case c == nil || c.GetCause() != seq:
		return 0
	case p.Canary.Decided.V.GetVerdict() == publish.CanaryDecided_PROMOTED:
		return c.GetCandidate()
	}
	return c.GetStable()
}

// VersionPath is where another version of a planned sub-model lies, which the plan puts at path.
func VersionPath(path string, version int64) string {
	return filepath.Join(filepath.Dir(path), strconv.FormatInt(version, 10))
}

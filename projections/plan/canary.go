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

// Promoted is the version that a canary of the load at seq has put in the place of the one
// that was loaded; 0: none has.
func (p Plan) Promoted(seq uint64) int64 {
	d := p.Canary.Decided.V
	if p.Canary.Declared.V.GetCause() != seq || d.GetVerdict() != publish.CanaryDecided_PROMOTED {
		return 0
	}
	return d.GetCandidate()
}

// VersionPath is where another version of a planned sub-model lies, which the plan puts at path.
func VersionPath(path string, version int64) string {
	return filepath.Join(filepath.Dir(path), strconv.FormatInt(version, 10))
}

package servables

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// avoids is the version of a configured name that answers nobody who does not ask for it, 0 where
// there is none. A version is loaded once the plan's view holds what had it loaded, see catchUp, so a
// candidate is known for one before it is AVAILABLE.
func (s *keeper) avoids(name string) (number int64) {
	model, _, _, err := s.manager.split(name)
	if err != nil {
		return 0
	}
	s.Plan.Read(func(st plan.State) { number = st.Plans[model].Avoided() })
	return number
}

// offered leaves out of versions the one that is not offered to whoever names none.
func (x *index) offered(name string, versions []*servable) ([]*servable, error) {
	if x.avoids == nil || len(versions) == 0 {
		return versions, nil
	}
	avoided := x.avoids(name)
	for i, g := range versions {
		if g.number() != avoided {
			continue
		}
		if len(versions) == 1 {
			return nil, status.Errorf(codes.Unavailable, "model %s does not answer: version %d is a canary's candidate, and the planned version is not AVAILABLE", name, avoided)
		}
		others := make([]*servable, 0, len(versions)-1)
		return append(append(others, versions[:i]...), versions[i+1:]...), nil
	}
	return versions, nil
}

// Candidate is the canary of the model that a spec names, nil where none runs or a version is asked for,
// and the candidate's entry, nil while that is not AVAILABLE with its rows at every shard.
func (s *Manager) Candidate(spec *apis.ModelSpec) (*publish.CanaryDeclared, *entry.Model) {
	if s.canary == nil || spec.GetVersionChoice() != nil {
		return nil, nil
	}
	c := s.canary(spec.GetName())
	if c == nil {
		return nil, nil
	}
	versions, _ := alias(s.index.Load().models, spec.GetName())
	for _, g := range versions {
		if g.entry != nil && g.number() == c.GetCandidate() && g.entry.Settled() {
			return c, g.entry
		}
	}
	return c, nil
}

// canaryOf is the canary of a configured name, nil where none runs.
func (s *keeper) canaryOf(name string) (c *publish.CanaryDeclared) {
	model, _, shard, err := s.manager.split(name)
	if err != nil || shard >= 0 {
		return nil
	}
	s.Plan.Read(func(st plan.State) {
		if p := st.Plans[model]; p.Candidate() != 0 {
			c = p.Running()
		}
	})
	return c
}

package servables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Wait blocks until each of the models has an available version or only failed ones,
// as the original's reload does, and returns the first failure, as a status.
func (s *Manager) Wait(ctx context.Context, stopping <-chan struct{}, names []string) error {
	var failure error
	for _, name := range names {
		for {
			s.mu.Lock()
			changed := s.changed
			settled, err := s.settled(name)
			s.mu.Unlock()
			if settled {
				failure = cmp.Or(failure, err)
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return status.Errorf(codes.DeadlineExceeded, "model %s is not available yet; the configuration stays in force, ask GetModelStatus", name)
			case <-stopping:
				return status.Errorf(codes.Unavailable, "model %s is not available yet, and the server is stopping; send the configuration to the next one", name)
			}
		}
	}
	if failure == nil {
		return nil
	}
	l := failed(failure)
	return status.Error(l.code, l.Error())
}

// settled tells whether a model needs no more waiting. The caller holds mu.
func (s *Manager) settled(name string) (bool, error) {
	if _, ok := s.configs[name]; !ok {
		return true, nil // configured away meanwhile
	}
	if s.forced[name] {
		return false, nil // not looked at yet
	}
	var err *loadError
	for _, v := range s.models[name] {
		if v.state != stateEnd && v.state != stateAvailable {
			return false, nil
		}
		if v.state == stateAvailable {
			return true, nil
		}
		if v.err != nil {
			err = v.err
		}
	}
	if err != nil {
		return true, &loadError{err.code, fmt.Errorf("model %s: %w", name, err)}
	}
	return false, nil
}

// Status is what became of one version of a model.
type Status struct {
	Version int64
	State   apis.ModelVersionStatus_State
	// Code and Err say why it ended; Err is nil where it was unloaded, or has not ended.
	Code codes.Code
	Err  error
}

// Status lists the versions of a model, newest first; number 0 means all.
func (s *Manager) Status(name string, number int64) []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions, _ := alias(s.models, name)
	var out []Status
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
		if number == 0 || n == number {
			v := versions[n]
			st := Status{Version: n, State: v.state}
			if v.err != nil {
				st.Code, st.Err = v.err.code, v.err
			}
			out = append(out, st)
		}
	}
	return out
}

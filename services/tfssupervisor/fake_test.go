package tfssupervisor_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// fake is a model server under the test's control.
type fake struct {
	mu      sync.Mutex
	models  []tfserving.Model
	configs int
	states  map[string]map[int64]*apis.ModelVersionStatus // name -> version
	refuse  error
	picky   bool            // refuses configurations that name other sub-models than entry and ps_<n>
	mute    map[string]bool // asked about these, it does not answer; "*": about all
	asked   int

	srv  *grpc.Server
	ln   net.Listener
	end  chan error
	pid  int
	once sync.Once
}

func (f *fake) GetModelStatus(ctx context.Context, r *apis.GetModelStatusRequest) (*apis.GetModelStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.mute["*"] || f.mute[r.GetModelSpec().GetName()] {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	res := &apis.GetModelStatusResponse{}
	for _, v := range f.states[r.GetModelSpec().GetName()] {
		res.ModelVersionStatus = append(res.ModelVersionStatus, proto.CloneOf(v))
	}
	if len(res.ModelVersionStatus) == 0 {
		return nil, status.Error(codes.NotFound, "Could not find any versions of model")
	}
	return res, nil
}

func (f *fake) HandleReloadConfigRequest(_ context.Context, r *apis.ReloadConfigRequest) (*apis.ReloadConfigResponse, error) {
	models, err := tfserving.Models(r.GetConfig())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	for _, m := range models {
		if _, sub, _ := strings.Cut(m.Name, ":"); f.picky && sub != "entry" && !strings.HasPrefix(sub, "ps_") {
			return nil, status.Errorf(codes.InvalidArgument, "sub-model %q is not served here", sub)
		}
	}
	f.models = models
	f.configs++
	return &apis.ReloadConfigResponse{}, nil
}

func (f *fake) set(name string, version int64, st apis.ModelVersionStatus_State, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.states == nil {
		f.states = map[string]map[int64]*apis.ModelVersionStatus{}
	}
	if f.states[name] == nil {
		f.states[name] = map[int64]*apis.ModelVersionStatus{}
	}
	s := &apis.StatusProto{}
	if message != "" {
		s.ErrorCode, s.ErrorMessage = for_core_protos_go_proto.Code_INTERNAL, message
	}
	f.states[name][version] = &apis.ModelVersionStatus{Version: version, State: st, Status: s}
}

// forget has it know nothing of a model any more.
func (f *fake) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.states, name)
}

func (f *fake) configured() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.models {
		versions := fmt.Sprint(m.Policy.Versions)
		if m.Policy.All {
			versions = "all"
		}
		out = append(out, fmt.Sprintf("%s@%s/%s", m.Name, m.BasePath, versions))
	}
	return out
}

func (f *fake) die(err error) {
	f.once.Do(func() {
		f.srv.Stop()
		f.end <- err
	})
}

func (f *fake) hush(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = map[string]bool{}
	for _, n := range names {
		f.mute[n] = true
	}
}

package modelserver_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

const (
	serving    = grpc_health_v1.HealthCheckResponse_SERVING
	notServing = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	unknown    = grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
)

// told is what Check says of each service; one that it does not know is unknown.
func (s *served) told(services ...string) (all []grpc_health_v1.HealthCheckResponse_ServingStatus) {
	s.w.t.Helper()
	for _, service := range services {
		res, err := grpc_health_v1.NewHealthClient(s.conn).Check(testContext(s.w.t), &grpc_health_v1.HealthCheckRequest{Service: service})
		switch {
		case status.Code(err) == codes.NotFound:
			all = append(all, unknown)
		case err != nil:
			s.w.t.Fatal(err)
		default:
			all = append(all, res.GetStatus())
		}
	}
	return all
}

// readyz holds what REST says of all models.
func (s *served) readyz(t *testing.T, want int, says string) {
	t.Helper()
	if code, body := get(t, s, "/readyz"); code != want || !strings.Contains(body, says) {
		t.Errorf("/readyz: %d %s; want %d saying %q", code, body, want, says)
	}
}

// Each model is a service of grpc.health.v1, and all of them are one without a name.
func TestHealthByModel(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	s := w.serve("one")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	type statuses = []grpc_health_v1.HealthCheckResponse_ServingStatus
	services := []string{"", ranker, ranker + ":entry", ranker + ":ps_0", "other"}
	check := func(when string, want ...grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got := s.told(services...); !slices.Equal(got, statuses(want)) {
			t.Errorf("%s: %v of %q, want %v", when, got, services, want)
		}
	}
	check("nothing is configured", notServing, unknown, unknown, unknown, unknown)
	s.readyz(t, http.StatusServiceUnavailable, "no model is configured yet")
	s.mustLoad(1, "entry", "ps_0")
	check("both answer", serving, serving, serving, serving, unknown)
	s.readyz(t, http.StatusOK, "{}")
	list, err := grpc_health_v1.NewHealthClient(s.conn).List(testContext(t), &grpc_health_v1.HealthListRequest{})
	if names := slices.Sorted(maps.Keys(list.GetStatuses())); err != nil || !slices.Equal(names, []string{"", ranker + ":entry", ranker + ":ps_0"}) {
		t.Errorf("listed are %q, %v", names, err)
	}
	if err := s.load(2, "entry", "ps_0", "dense_0"); err == nil {
		t.Error("a version that is not there is loaded")
	}
	if got := s.told("", ranker+":dense_0"); !slices.Equal(got, statuses{notServing, notServing}) {
		t.Errorf("with a sub-model that is not served here: %v", got)
	}
	s.readyz(t, http.StatusServiceUnavailable, "model ranker:dense_0 does not answer")
}

// A watch sees a model come and go, and ends with the server.
func TestHealthIsWatched(t *testing.T) {
	w := newWorld(t)
	w.export(1, 1, 0)
	s := w.serve("one")
	watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(testContext(t), &grpc_health_v1.HealthCheckRequest{Service: ranker})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for { // what lasts a moment may be seen, or not
			res, err := watch.Recv()
			if err != nil {
				t.Fatalf("%v, want %v", err, want)
			}
			if res.GetStatus() == want {
				return
			}
		}
	}
	next(unknown)
	s.mustLoad(1, "entry")
	next(serving)
	s.mustLoad(1)
	next(unknown)
	s.mustLoad(1, "entry")
	next(serving)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	next(notServing)
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the server stops: %v; want UNAVAILABLE", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A caller that has no protos finds every service, and what its messages are.
func TestReflection(t *testing.T) {
	s := newWorld(t).serve("one")
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(q *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(q); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	var names []string
	for _, service := range ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
		res := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}})
		if e := res.GetErrorResponse(); e != nil {
			t.Errorf("%s: %s", service.GetName(), e.GetErrorMessage())
		}
		for _, b := range res.GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(b, f); err != nil {
				t.Fatal(err)
			}
			files[f.GetName()] = f
		}
	}
	for _, want := range []string{tfserving.PredictionService, tfserving.ModelService, "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not listed: %q", want, names)
		}
	}
	set := &descriptorpb.FileDescriptorSet{File: slices.Collect(maps.Values(files))}
	known, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatalf("the files do not make a whole: %v", err)
	}
	d, err := known.FindDescriptorByName(tfserving.PredictionService + ".MultiInference")
	if err != nil || d.(protoreflect.MethodDescriptor).Input().FullName() != "tensorflow.serving.MultiInferenceRequest" {
		t.Errorf("MultiInference: %v, %v", d, err)
	}
}

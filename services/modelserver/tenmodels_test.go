package modelserver_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// Ten models are added beside one that answers, five of them are taken out again, and at last all: a
// configuration is the whole of what is served, and what it leaves alone answers meanwhile.
func TestTenModelsComeAndGo(t *testing.T) {
	const models = 10
	w := newWorld(t)
	w.export(1, 2, 0)
	s := w.serve("s")
	s.mustLoad(1, "entry", "ps_0", "ps_1")
	subs := []string{"entry", "ps_0", "ps_1"}
	name := func(i int, sub string) string { return fmt.Sprintf("test_%d:%s", i, sub) }
	config := func(ranked bool, from, to int) {
		t.Helper()
		var all []tfserving.Model
		add := func(name, sub string) {
			all = append(all, tfserving.Model{Name: name, BasePath: filepath.Join(w.dir, sub), Policy: tfserving.Policy{Versions: []int64{1}}})
		}
		for _, sub := range subs {
			if ranked {
				add(ranker+":"+sub, sub)
			}
			for i := from; i < to; i++ {
				add(name(i, sub), sub)
			}
		}
		if _, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: tfserving.Config(all...)}); err != nil {
			t.Fatal(err)
		}
	}
	// served waits until the models from..to are AVAILABLE, and all others of the ten END or NOT_FOUND.
	served := func(from, to int) {
		t.Helper()
		for i := range models {
			for _, sub := range subs {
				wait.Until(t, name(i, sub), func() error {
					res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(name(i, sub), 0)})
					switch in := from <= i && i < to; {
					case !in && status.Code(err) != codes.NotFound && !slices.ContainsFunc(res.GetModelVersionStatus(), func(v *apis.ModelVersionStatus) bool { return v.GetState() == apis.ModelVersionStatus_END }):
						return fmt.Errorf("it is %v, %v; want none", res.GetModelVersionStatus(), err)
					case in && err != nil:
						return err
					case in && (len(res.GetModelVersionStatus()) != 1 || res.GetModelVersionStatus()[0].GetState() != apis.ModelVersionStatus_AVAILABLE):
						return errors.New(res.String())
					}
					return nil
				})
			}
		}
	}
	for task := range int32(2) {
		w.register(task, 0, "s", s.RowsAddr())
	}
	wait.Until(t, "an answer", func() error { return s.check(someUsers, someMovies) })
	served(0, 0)
	config(true, 0, models)
	served(0, models)
	config(true, 5, models)
	served(5, models)
	if err := s.check(someUsers, someMovies); err != nil {
		t.Errorf("what was served before: %v", err)
	}
	config(false, 0, 0)
	served(0, 0)
	if _, err := s.scores(someUsers, someMovies); status.Code(err) != codes.NotFound {
		t.Errorf("nothing is served, and it answers %v", err)
	}
}

package modelserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// twoVersions exports two versions that differ, and returns the scores of each for someUsers.
func (w *world) twoVersions() (first, second []float32) {
	w.export(1, 2, 0)
	for i := range someUsers {
		first = append(first, w.score(someUsers[i], someMovies[i]))
	}
	w.negate()
	w.export(2, 2, 0)
	for i := range someUsers {
		second = append(second, w.score(someUsers[i], someMovies[i]))
	}
	return first, second
}

// configText is a ModelServerConfig that serves both versions of all sub-models.
func (w *world) configText(labels map[string]int64) string {
	var b strings.Builder
	for _, sub := range []string{"entry", "ps_0", "ps_1"} {
		fmt.Fprintf(&b, "  config { name: %q base_path: %q model_platform: \"tensorflow\" model_version_policy { all {} }", ranker+":"+sub, filepath.Join(w.dir, sub))
		for label, version := range labels {
			if sub == "entry" {
				fmt.Fprintf(&b, " version_labels { key: %q value: %d }", label, version)
			}
		}
		fmt.Fprintln(&b, " }")
	}
	return "model_config_list {\n" + b.String() + "}\n"
}

// labelAnswers holds what a label answers over gRPC and REST against the scores of a version.
func (s *served) labelAnswers(t *testing.T, label string, version int64, want []float32) {
	t.Helper()
	wait.Until(t, label, func() error {
		req := request(someUsers, someMovies)
		req.ModelSpec.VersionChoice = &apis.ModelSpec_VersionLabel{VersionLabel: label}
		res, err := s.predict.Predict(testContext(t), req)
		if err != nil {
			return err
		}
		if got := res.GetModelSpec().GetVersion().GetValue(); got != version {
			return fmt.Errorf("version %d answers, want %d", got, version)
		}
		nearly(t, label+" over gRPC", mustJSON(t, res.GetOutputs()["score"].GetFloatVal()), want)
		return nil
	})
	code, body := post(t, s, "/v1/models/"+ranker+"/labels/"+label+":predict", string(mustJSON(t, map[string]any{"inputs": map[string]any{"user": someUsers, "movie": someMovies}})))
	var said struct{ Outputs json.RawMessage }
	if err := json.Unmarshal([]byte(body), &said); err != nil || code != http.StatusOK {
		t.Fatalf("%s over REST: %d %s", label, code, body)
	}
	nearly(t, label+" over REST", said.Outputs, want)
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A server that is started with labels in its configuration file binds each when its version is
// AVAILABLE, follows the file, and keeps what it said while it is broken.
func TestLabelsOfAConfigFile(t *testing.T) {
	w := newWorld(t)
	first, second := w.twoVersions()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	path := filepath.Join(t.TempDir(), "models.config")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	put(w.configText(map[string]int64{"stable": 1, "canary": 2, "later": 3}))
	s, _ := w.one(2, func(c *modelserver.Config) { c.ModelConfigFile, c.ModelConfigPoll = path, 1 })
	s.labelAnswers(t, "stable", 1, first)
	s.labelAnswers(t, "canary", 2, second)
	for path, want := range map[string]string{
		"/v1/models/ranker/labels/canary":          `200 "version": "2"`,
		"/v1/models/ranker/labels/stable/metadata": `200 "version": "1"`,
		"/v1/models/ranker/labels/nobody":          `400 Unrecognized servable version label: nobody; the model has {canary, later, stable}`,
		"/v1/models/ranker/labels/later/metadata":  `404 Servable not found for request: Specific(ranker, 3) (version label later)`,
	} {
		code, says, _ := strings.Cut(want, " ")
		if got, body := get(t, s, path); fmt.Sprint(got) != code || !strings.Contains(body, says) {
			t.Errorf("%s: %d %s, want %s", path, got, body, want)
		}
	}
	put(w.configText(map[string]int64{"stable": 2}))
	s.labelAnswers(t, "stable", 2, second)
	put("model_config_list { config { name: ")
	wait.Until(t, "a broken file", func() error {
		if problem := s.health.Summary(); !strings.HasPrefix(problem, "model config file: --model-config-file: "+path+" is no ModelServerConfig in text form") {
			return fmt.Errorf("health %q", problem)
		}
		return nil
	})
	s.labelAnswers(t, "stable", 2, second)
	put(w.configText(map[string]int64{"stable": 1}))
	s.labelAnswers(t, "stable", 1, first)
	wait.Until(t, "a whole file", func() error {
		if problem := s.health.Summary(); problem != "" {
			return fmt.Errorf("health %q", problem)
		}
		return nil
	})
}

// A reload binds labels of versions that are AVAILABLE, and others only where that is allowed.
func TestLabelsOfAReload(t *testing.T) {
	w := newWorld(t)
	first, second := w.twoVersions()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for name, pending := range map[string]bool{"strict": false, "pending": true} {
		s, subs := w.one(2, func(c *modelserver.Config) { c.AllowPendingLabels = pending })
		reload := func(labels map[string]int64) error {
			var models []tfserving.Model
			for _, sub := range subs {
				m := tfserving.Model{Name: ranker + ":" + sub, BasePath: filepath.Join(w.dir, sub), Policy: tfserving.Policy{All: true}}
				if sub == "entry" {
					m.Labels = labels
				}
				models = append(models, m)
			}
			_, err := s.models.HandleReloadConfigRequest(testContext(t), &apis.ReloadConfigRequest{Config: tfserving.Config(models...)})
			return err
		}
		if err := reload(nil); err != nil {
			t.Fatal(err)
		}
		s.until("entry", "2 AVAILABLE", "1 AVAILABLE")
		if err := reload(map[string]int64{"stable": 1}); err != nil {
			t.Fatal(err)
		}
		s.labelAnswers(t, "stable", 1, first)
		want := codes.FailedPrecondition
		if pending {
			want = codes.OK
		}
		if err := reload(map[string]int64{"stable": 3, "canary": 2}); status.Code(err) != want {
			t.Errorf("%s: a label of a version that is not there: %v, want %v", name, err, want)
		}
		s.labelAnswers(t, "stable", 1, first)
		if pending {
			s.labelAnswers(t, "canary", 2, second)
		}
		if err := reload(map[string]int64{"a/b": 1}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "without a slash") {
			t.Errorf("%s: a label that no request could name: %v", name, err)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

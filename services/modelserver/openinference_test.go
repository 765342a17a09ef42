package modelserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// The open inference protocol answers what Predict does, and says of the server and its models what
// their status says.
func TestOpenInference(t *testing.T) {
	c := newCluster(t, job)
	s := c.entry
	want := fmt.Sprintf(`{"model_name":%q,"model_version":"1","id":"a","outputs":[{"name":"score","datatype":"FP32","shape":[2],"data":[%v,%v]}]}`, ranker, c.w.score(5, 7), c.w.score(6, 8))
	const body = `{"id":"a","inputs":[{"name":"user","datatype":"INT64","shape":[2],"data":[5,6]},{"name":"movie","datatype":"INT64","shape":[2,1],"data":[[7],[8]]}]}`
	for _, path := range []string{"/infer", "/versions/1/infer"} {
		if code, said := post(t, s, "/v2/models/"+ranker+path, body); code != http.StatusOK || said != want {
			t.Errorf("%s: %d %s, want %s", path, code, said, want)
		}
	}
	for path, want := range map[string]string{
		"/v2/health/live":                      `200 {"live":true}`,
		"/v2/health/ready":                     `200 {"ready":true}`,
		"/v2/models/" + ranker + "/ready":      `200 {"ready":true}`,
		"/v2/models/" + ranker + "/versions/9": `404 {"error":`,
		"/v2/models/nobody/ready":              `404 {"error":`,
		"/v2/models/" + ranker + "/infer":      `400 {"error":"GET /v2/models/` + ranker + `/infer: infer is a POST, all else is a GET"}`,
		"/v2/models/" + ranker + "/versions/1": fmt.Sprintf(`200 {"name":%q,"versions":["1"],"platform":"monolith","inputs":[{"name":"user","datatype":"INT64","shape":[-1,-1]},{"name":"movie","datatype":"INT64","shape":[-1,-1]}],"outputs":[{"name":"score","datatype":"FP32","shape":[-1]}]}`, ranker),
		"/v2":                                  `200 {"name":"monolith",`,
		"/v2/repository/index":                 `400 {`,
	} {
		code, said := get(t, s, path)
		if got := fmt.Sprint(code, " ", said); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for body, says := range map[string]string{
		`{"inputs":[]}`: "user",
		`nothing`:       "no JSON of the open inference protocol",
		`{"inputs":[{"name":"user","datatype":"INT64","shape":[1],"data":[5]},{"name":"movie","datatype":"INT64","shape":[1],"data":[5]}],"outputs":[{"name":"x"}]}`: "not found in signature",
	} {
		if code, said := post(t, s, "/v2/models/"+ranker+"/infer", body); code != http.StatusBadRequest || !strings.Contains(said, says) {
			t.Errorf("%s: %d %s, want %q", body, code, said, says)
		}
	}
}

// triton runs a script of Triton's own client.
func triton(t *testing.T, script string, args ...string) (said map[string]json.RawMessage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), oracle.Triton(t), append([]string{script}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	decode(t, "the answers", stdout.Bytes(), &said)
	return said
}

// TestOracleTriton asks with Triton's own clients, over HTTP and gRPC.
func TestOracleTriton(t *testing.T) {
	oracle.Triton(t)
	c := newCluster(t, job)
	scores := []any{"r1", "1", []float32{c.w.score(5, 7), c.w.score(6, 8)}}
	for what, way := range map[string]struct {
		said map[string]json.RawMessage
		asks []string
	}{
		"HTTP": {triton(t, "testdata/triton_client.py", c.entry.HTTPAddr(), ranker), []string{"json", "bytes"}},
		"gRPC": {triton(t, "testdata/triton_grpc.py", c.entry.GRPCAddr(), ranker), []string{"bytes", "typed"}},
	} {
		for asked, want := range map[string]any{
			"live": true, "ready": true, "model ready": true, "version ready": true, "no such version": false, "no such model": false, "server": "monolith",
		} {
			nearly(t, what+" "+asked, way.said[asked], want)
		}
		for _, asked := range way.asks {
			nearly(t, what+" "+asked, way.said[asked], scores)
		}
		if wrong := string(way.said["wrong"]); !strings.Contains(wrong, "movie") {
			t.Errorf("%s: an input is missing: %s", what, wrong)
		}
		if m := string(way.said["metadata"]); !strings.Contains(m, `"versions": ["1"]`) {
			t.Errorf("%s: metadata %s", what, m)
		}
		if what == "gRPC" {
			nearly(t, what+" of nobody", way.said["nobody"], []any{"StatusCode.NOT_FOUND", "Servable not found for request: Latest(nobody)"})
		}
	}
}

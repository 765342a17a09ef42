package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/planted"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// dropIn is a folder of exports, and the model server that a link named like TensorFlow Serving's
// program is. Nothing else runs: no NATS, no supervisor.
type dropIn struct {
	t       *testing.T
	job     string // the training job's folder
	data    string // that of its records
	exports string // of sub-models
	at      struct{ GRPC, HTTP string }
}

// trained learns records in a folder of the test's, up to so many steps, which leaves an export there.
func (d *dropIn) trained(steps int) {
	d.t.Helper()
	c := startChild(d.t, "train", "--spec", filepath.Join(repository, "docs", "models", "deepfm.yaml"), "--dir", d.job, "--files", filepath.Join(d.data, "part-*.json"),
		"--shards", "2", "--max-steps", strconv.Itoa(steps))
	if err := c.wait(d.t, wait.Patience); err != nil {
		d.t.Fatalf("train: %v: %s", err, tail(c.err.String()))
	}
}

func newDropIn(t *testing.T) *dropIn {
	d := &dropIn{t: t, job: filepath.Join(t.TempDir(), "job"), data: t.TempDir()}
	d.exports = filepath.Join(d.job, "training", "movies", "exported_models")
	rng := rand.New(rand.NewPCG(1, 2))
	for name, n := range map[string]int{"part-0.json": 2000, "asked.json": 6} {
		var b bytes.Buffer
		for range n {
			b.Write(planted.Draw(rng, "deepfm").AppendJSON(nil))
			b.WriteByte('\n')
		}
		if err := os.WriteFile(filepath.Join(d.data, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// expected is what monolith predict makes of the records that are asked about, and these.
func (d *dropIn) expected() (users, movies []int64, scores []float64) {
	d.t.Helper()
	asked := filepath.Join(d.data, "asked.json")
	c := startChild(d.t, "predict", "--dir", d.job, "--files", asked)
	if err := c.wait(d.t, wait.Patience); err != nil {
		d.t.Fatalf("predict: %v: %s", err, tail(c.err.String()))
	}
	for line := range strings.Lines(c.out.String()) {
		x, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			d.t.Fatal(err)
		}
		scores = append(scores, x)
	}
	raw, err := os.ReadFile(asked)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var r struct{ UserID, MovieID int64 }
		if err := json.Unmarshal(line, &r); err != nil {
			d.t.Fatal(err)
		}
		users, movies = append(users, r.UserID), append(movies, r.MovieID)
	}
	if len(scores) != len(users) || len(users) == 0 {
		d.t.Fatalf("%d scores of %d records", len(scores), len(users))
	}
	return users, movies, scores
}

// serve starts the link with flags of TensorFlow Serving's, and on any free ports.
func (d *dropIn) serve(flags ...string) *child {
	d.t.Helper()
	link := filepath.Join(d.t.TempDir(), modelServer)
	if err := os.Symlink(os.Args[0], link); err != nil {
		d.t.Fatal(err)
	}
	addr := filepath.Join(d.t.TempDir(), "addr.json")
	c := startProgram(d.t, link, append(flags, "--port=0", "--rest_api_port=0", "--addr-file", addr)...)
	wait.For(d.t, "the server says where it listens", func() bool {
		select {
		case <-c.done:
			d.t.Fatalf("the server ended: %s", tail(c.err.String()))
		default:
		}
		raw, err := os.ReadFile(addr)
		return err == nil && json.Unmarshal(raw, &d.at) == nil
	})
	return c
}

// rest asks a path below /v1/models/; a body makes it a POST, as curl -d does.
func (d *dropIn) rest(path, body string) (code int, answer string) {
	d.t.Helper()
	var in io.Reader
	method := http.MethodGet
	if body != "" {
		method, in = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.at.HTTP+"/v1/models/"+path, in)
	if err != nil {
		d.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// answers holds that the model answers with these scores, over REST.
func (d *dropIn) answers(model string, users, movies []int64, want []float64) {
	d.t.Helper()
	var rows []string
	for i := range users {
		rows = append(rows, fmt.Sprintf(`{"user":%d,"movie":%d}`, users[i], movies[i]))
	}
	code, body := d.rest(model+":predict", `{"instances":[`+strings.Join(rows, ",")+`]}`)
	var got struct{ Predictions []float64 }
	if err := json.Unmarshal([]byte(body), &got); code != 200 || err != nil {
		d.t.Fatalf("%d: %s", code, body)
	}
	same(d.t, got.Predictions, want)
}

// same holds scores against others that were rounded on the way.
func same(t *testing.T, got, want []float64) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		ok = ok && math.Abs(got[i]-want[i]) < 1e-6
	}
	if !ok {
		t.Fatalf("scores %v, want %v", got, want)
	}
}

// state is what the status says of a version, and why.
func (d *dropIn) state(model string, version int) (state, why string) {
	d.t.Helper()
	_, body := d.rest(model, "")
	var got struct {
		Versions []struct {
			Version, State string
			Status         struct {
				Why string `json:"error_message"`
			}
		} `json:"model_version_status"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		d.t.Fatalf("%s: %v", body, err)
	}
	for _, v := range got.Versions {
		if v.Version == strconv.Itoa(version) {
			return v.State, v.Status.Why
		}
	}
	return "", ""
}

// until waits for a state of a version, and returns why it is so.
func (d *dropIn) until(model string, version int, want string) (why string) {
	d.t.Helper()
	wait.For(d.t, fmt.Sprintf("version %d is %s", version, want), func() bool {
		var state string
		state, why = d.state(model, version)
		return state == want
	})
	return why
}

// newest is the greatest version that was exported.
func (d *dropIn) newest() (n int) {
	d.t.Helper()
	found, err := os.ReadDir(filepath.Join(d.exports, "entry"))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range found {
		if v, err := strconv.Atoi(f.Name()); err == nil {
			n = max(n, v)
		}
	}
	return n
}

// copied makes another version of one that is there, in one sub-model.
func (d *dropIn) copied(sub string, from, to int) {
	d.t.Helper()
	if err := os.CopyFS(filepath.Join(d.exports, sub, strconv.Itoa(to)), os.DirFS(filepath.Join(d.exports, sub, strconv.Itoa(from)))); err != nil {
		d.t.Fatal(err)
	}
}

// What a job has exported is served by a link named tensorflow_model_server when all else has stopped:
// no NATS, no other server. It answers curl and TensorFlow's own client with what the checkpoint itself
// says; a version that appears is served, one that is broken leaves the one before it and says why.
func TestDropIn(t *testing.T) {
	d := newDropIn(t)
	d.trained(10)
	first := d.newest()
	users, movies, scores := d.expected()
	c := d.serve("--model_name=movies", "--model_base_path="+filepath.Join(d.exports, "entry"), "--file_system_poll_wait_seconds=1",
		"--tensorflow_session_parallelism=4", "--enable_profiler=false")
	d.until("movies", first, "AVAILABLE")
	d.answers("movies", users, movies, scores)
	if n := strings.Count(c.err.String(), "flags that do nothing here"); n != 1 || !strings.Contains(c.err.String(), "tensorflow-session-parallelism, enable-profiler") {
		t.Errorf("flags that do nothing are told of %d times:\n%s", n, tail(c.err.String()))
	}

	d.trained(40)
	second := d.newest()
	if second <= first {
		t.Fatalf("version %d after %d", second, first)
	}
	_, _, better := d.expected()
	d.until("movies", second, "AVAILABLE")
	d.answers("movies", users, movies, better)

	broken := second + 1
	for _, sub := range []string{"ps_0", "ps_1"} {
		d.copied(sub, second, broken)
	}
	table := filepath.Join(d.exports, "ps_1", strconv.Itoa(broken), "table-00000.tfrecord")
	raw, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(table, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	d.copied("entry", second, broken)
	if why := d.until("movies", broken, "END"); !strings.Contains(why, filepath.Join("ps_1", strconv.Itoa(broken))) {
		t.Errorf("the broken version ended with %q", why)
	}
	if state, _ := d.state("movies", second); state != "AVAILABLE" {
		t.Errorf("beside a broken version the one before it is %s", state)
	}
	d.answers("movies", users, movies, better)

	if err := os.RemoveAll(filepath.Join(d.exports, "ps_1", strconv.Itoa(broken))); err != nil {
		t.Fatal(err)
	}
	d.copied("ps_1", second, broken)
	d.until("movies", broken, "AVAILABLE") // mended
	d.answers("movies", users, movies, better)
	d.python(users, movies, broken, better)
}

// python asks by tensorflow-serving-api.
func (d *dropIn) python(users, movies []int64, version int, want []float64) {
	d.t.Helper()
	python := oracle.Python(d.t)
	u, m := fmt.Sprint(users), fmt.Sprint(movies)
	cmd := exec.CommandContext(d.t.Context(), python, "testdata/tf_predict.py", d.at.GRPC, "movies", strings.ReplaceAll(u, " ", ","), strings.ReplaceAll(m, " ", ","))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%v\n%s", err, &stderr)
	}
	var got [2]json.RawMessage
	var scores []float64
	if json.Unmarshal(out, &got) != nil || json.Unmarshal(got[1], &scores) != nil || string(got[0]) != strconv.Itoa(version) {
		d.t.Fatalf("%s", out)
	}
	same(d.t, scores, want)
}

// A server that polls its file of models takes what the file says anew, and while the file is broken
// goes on with what it said before.
func TestDropInConfigFile(t *testing.T) {
	d := newDropIn(t)
	d.trained(10)
	version := d.newest()
	users, movies, scores := d.expected()
	file := filepath.Join(t.TempDir(), "models.config")
	say := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	model := func(name string) string {
		return fmt.Sprintf("config { name: %q base_path: %q model_platform: \"tensorflow\" version_labels { key: \"stable\" value: %d } }\n", name, filepath.Join(d.exports, "entry"), version)
	}
	say("model_config_list {\n" + model("movies") + "}\n")
	c := d.serve("--model_config_file="+file, "--model_config_file_poll_wait_seconds=1", "--model_base_path=/nowhere", "--num_load_threads=1", "--num_unload_threads=1")
	d.until("movies", version, "AVAILABLE")
	d.answers("movies/labels/stable", users, movies, scores)

	say("model_config_list {\n" + model("movies") + "config { name: ")
	wait.For(t, "the server says that the file is broken", func() bool { return strings.Contains(c.err.String(), "what it said before stays in force") })
	d.answers("movies", users, movies, scores)

	say("model_config_list {\n" + model("films") + "}\n")
	d.until("films", version, "AVAILABLE")
	d.answers("films/labels/stable", users, movies, scores)
	var shards strings.Builder
	for _, sub := range []string{"ps_0", "ps_1"} {
		fmt.Fprintf(&shards, "config { name: %q base_path: %q model_platform: \"tensorflow\" }\n", sub, filepath.Join(d.exports, sub))
	}
	say("model_config_list {\n" + model("films") + shards.String() + "}\n")
	d.until("ps_0", version, "AVAILABLE")
	d.until("ps_1", version, "AVAILABLE")
	d.pushed("films", d.at.GRPC, users[0], movies[0])
	wait.For(t, "the other model is gone", func() bool {
		code, _ := d.rest("movies:predict", `{"instances":[]}`)
		return code == http.StatusNotFound
	})
	if !strings.Contains(c.err.String(), "--model-base-path is not looked at") {
		t.Error("nobody says that --model_base_path means nothing beside a file of models")
	}
}

// A call that TensorFlow Serving would not take, or that says nothing to serve, ends with 2 and a sentence.
func TestDropInUsage(t *testing.T) {
	for flags, want := range map[string]string{
		"--no_such_flag=1":                       "unknown flag: --no_such_flag",
		"":                                       "--model-base-path or --model-config-file",
		"--model_base_path=x --port=70000":       "--port is 70000, want 0 to 65535",
		"--model_base_path=x --port=x":           "invalid argument",
		"--model_base_path=x --port=1 --grpc=:1": "--port and --grpc both say where to listen",
		"--model_base_path=x --nats=nats://127.0.0.1:1":            "--nats is given without --container",
		"--model_base_path=x --file_system_poll_wait_seconds=-2":   "--file-system-poll-wait-seconds is -2",
		"--model_base_path=x --max_num_load_retries=-1":            "--max-num-load-retries -1",
		"--model_base_path=x --platform_config_file=/nowhere/file": "--platform-config-file",
		"--model_base_path=x --batching_parameters_file=f":         "--enable-batching",
	} {
		link := filepath.Join(t.TempDir(), modelServer)
		if err := os.Symlink(os.Args[0], link); err != nil {
			t.Fatal(err)
		}
		c := startProgram(t, link, strings.Fields(flags)...)
		_ = c.wait(t, wait.Patience)
		if code := c.cmd.ProcessState.ExitCode(); code != exitUsage || !strings.Contains(c.err.String(), want) || strings.Count(c.err.String(), "monolith:") != 1 {
			t.Errorf("%q: %d, %s", flags, code, c.err.String())
		}
	}
}

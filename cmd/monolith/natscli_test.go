package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/history"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// handsWithin bounds each wait of these tests, on a loaded machine.
const handsWithin = wait.Patience

// hands is a running `monolith up` and somebody in front of it, with nothing but what the
// banner says, the nats CLI, a ZooKeeper client and monolith's own tools.
type hands struct {
	t      *testing.T
	home   string // where it was started, and where lines are typed
	banner string
	env    []string // of what is typed
	keeper *zk.Conn
	live   *story // nats sub, since before the first load
}

// handsUp runs the command until the test ends, and returns when its banner is there.
func handsUp(t *testing.T, args ...string) *hands {
	t.Helper()
	cli := oracle.NATS(t)
	h := &hands{t: t, home: t.TempDir()}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	root := newRoot()
	root.SetArgs(append([]string{"up", "--dir", filepath.Join(h.home, "monolith-data"), "--nats-port", "0", "--kafka-port", "0", "--zk-port", "0", "--grpc-port", "0", "--rest-port", "0"}, args...))
	root.SetOut(in)
	root.SetErr(in)
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		in.CloseWithError(err)
		ended <- err
	}()
	said := make(chan string)
	go func() { // to the end, so that nobody waits for a reader
		defer close(said)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case said <- s.Text():
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("monolith up ended with %v", err)
		}
	})
	timeout := time.After(handsWithin)
	for !strings.Contains(h.banner, "Load the model: ") {
		select {
		case line, more := <-said:
			if !more {
				t.Fatalf("monolith up says no more than:\n%s", h.banner)
			}
			h.banner += line + "\n"
		case <-timeout:
			t.Fatalf("monolith up says no more than:\n%s", h.banner)
		}
	}
	h.env = append(os.Environ(), "PATH="+filepath.Dir(cli)+":"+os.Getenv("PATH"), "NATS_URL="+h.told("NATS"), "XDG_CONFIG_HOME="+t.TempDir(), "NATS_TIMEOUT=60s")
	return h
}

// told is what the banner says of something.
func (h *hands) told(what string) string {
	h.t.Helper()
	m := regexp.MustCompile(`(?m)^ +` + what + ` +(\S+)`).FindStringSubmatch(h.banner)
	if m == nil {
		h.t.Fatalf("the banner does not say %s:\n%s", what, h.banner)
	}
	return m[1]
}

// command is a line as it is typed into a shell.
func (h *hands) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), "sh", "-c", "exec "+line)
	cmd.Env, cmd.Dir = h.env, h.home
	return cmd
}

// types runs the line to its end, which must be a success.
func (h *hands) types(line string) (stdout, stderr string) {
	h.t.Helper()
	cmd := h.command(line)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("%s: %v\n%s%s", line, err, &out, &errs)
	}
	return out.String(), errs.String()
}

// monolith runs one of our own tools; its output must be JSON when into is given.
func (h *hands) monolith(into any, args ...string) string {
	h.t.Helper()
	var out, errs bytes.Buffer
	if code := run(append(args, "--nats", h.told("NATS")), &out, &errs); code != exitOK {
		h.t.Fatalf("monolith %s: %d, %s%s", strings.Join(args, " "), code, &out, &errs)
	}
	if into != nil {
		if err := json.Unmarshal(out.Bytes(), into); err != nil {
			h.t.Fatalf("monolith %s: %s: %v", strings.Join(args, " "), &out, err)
		}
	}
	return out.String()
}

// until tries again until cond is true.
func (h *hands) until(what string, cond func() (ok bool, say string)) {
	h.t.Helper()
	wait.Seen(h.t, what, func() (string, bool) { ok, say := cond(); return say, ok })
}

// predict is the outcome of one Predict on the entry's port.
func (h *hands) predict() error {
	h.t.Helper()
	client, err := scenario.Dial(h.told("gRPC"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(h.t.Context(), wait.Patience)
	defer cancel()
	_, err = predictPairs(client, ctx, host.ModelName, "", []int64{1}, []int64{2})
	return err
}

// story is a running `nats sub --raw`.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// listens starts the line and returns once it hears what is published.
func (h *hands) listens(line string) *story {
	h.t.Helper()
	cmd := h.command(line)
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	s := &story{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			if lines.Text() != "" {
				s.mu.Lock()
				s.lines = append(s.lines, lines.Text())
				s.mu.Unlock()
			}
		}
	}()
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait() // killed: its error says so
	})
	nc, err := nats.Connect(h.told("NATS"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer nc.Close()
	h.until("nats sub hears something", func() (bool, string) {
		if err := nc.Publish("monolith.demo.hello.there", []byte(`{"hello":{}}`)); err != nil {
			h.t.Fatal(err)
		}
		return slices.Contains(s.all(), `{"hello":{}}`), "nothing"
	})
	return s
}

// refusal is the JSON with which a command is refused.
type refusal struct {
	Error struct{ Code, Message string }
}

// Nodes of the ZooKeeper port that show what is loaded, and a replica of it.
const handsReplica, handsPortal = "/demo/service/movies/ps:0/0", "/demo/portal/movies"

// TestNATSCLI types the documents' lines for the nats CLI into a shell, with a ZooKeeper
// client beside it.
func TestNATSCLI(t *testing.T) {
	h := handsUp(t, "--shards", "1", "--trainers", "1", "--partitions", "1")
	h.until("a first export", func() (bool, string) {
		_, err := os.Stat(filepath.Join(h.told("exports"), "entry", "1"))
		return err == nil, fmt.Sprint(err)
	})
	h.keeper = oracle.ZKClient(t, h.told("ZooKeeper"), nil)
	h.step("nats micro ls", h.micro)
	h.step("nats req refused", h.refused)
	h.live = h.listens("nats sub 'monolith.>' --raw -I 'monolith.*.cmd.>'")
	h.step("nats pub loads", h.pubLoads)
	h.step("nats req answers with the fact", h.reqLoads)
	h.step("the story so far", h.soFar)
	h.step("a malformed nats pub", h.malformed)
	h.step("the handbook", func(*testing.T) { h.handbook() })
}

// step is a sub-test, which is the hands' test meanwhile.
func (h *hands) step(name string, f func(*testing.T)) {
	outer := h.t
	outer.Run(name, func(t *testing.T) {
		h.t = t
		defer func() { h.t = outer }()
		f(t)
	})
}

func (h *hands) micro(t *testing.T) {
	var services []struct {
		Name, Version string
		Endpoints     []struct{ Subject string }
	}
	out, _ := h.types("nats micro ls --json")
	if err := json.Unmarshal([]byte(out), &services); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	var names, subjects []string
	for _, s := range services {
		names = append(names, s.Name)
		for _, e := range s.Endpoints {
			subjects = append(subjects, e.Subject)
		}
		if s.Version != "1.0.0" {
			t.Errorf("%s has version %q", s.Name, s.Version)
		}
	}
	slices.Sort(names)
	if want := []string{"model-sync", "portal", "ps-movies-0", "publisher", "pulse-registry", "registry", "trainer-movies"}; !slices.Equal(names, want) {
		t.Errorf("services %q, want %q", names, want)
	}
	for _, want := range []string{"monolith.demo.cmd.portal.load", "monolith.demo.cmd.trainer.movies.checkpoint", "monolith.demo.cmd.ps.movies.0.offsets", "mpulse.demo.cmd.pulse.registry.heartbeat"} {
		if !slices.Contains(subjects, want) {
			t.Errorf("nobody serves %s: %q", want, subjects)
		}
	}
	if out, _ := h.types("nats micro ls"); !strings.Contains(out, "what should be served: models, saved models, layouts") {
		t.Errorf("nats micro ls:\n%s", out)
	}
}

func (h *hands) refused(t *testing.T) {
	for body, want := range map[string]refusal{
		`{"modelName":`: {struct{ Code, Message string }{"INVALID", "does not decode"}},
		`{"modelName":"movies","modelDir":"/nowhere"}`: {struct{ Code, Message string }{"INVALID", "modelDir /nowhere cannot be read"}},
		`{"modelName":"movies","modell":"x"}`:          {struct{ Code, Message string }{"INVALID", `unknown field "modell"`}},
		`{}`:                                           {struct{ Code, Message string }{"INVALID", "modelName"}},
	} {
		line := "nats req --raw monolith.demo.cmd.portal.load '" + body + "'"
		out, _ := h.types(line)
		var got refusal
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Error.Code != want.Error.Code || !strings.Contains(got.Error.Message, want.Error.Message) {
			t.Errorf("%s: %s (%v), want %s saying %q", line, out, err, want.Error.Code, want.Error.Message)
		}
	}
	if out, stderr := h.types("nats req monolith.other.cmd.portal.load '{\"modelName\":\"movies\"}'"); !strings.Contains(out+stderr, "No responders are available") {
		t.Errorf("another namespace: %s%s", out, stderr)
	}
	if err := h.predict(); status.Code(err) != codes.NotFound {
		t.Errorf("Predict before any load: %v", err)
	}
}

func (h *hands) pubLoads(t *testing.T) {
	_, _, born, err := h.keeper.ExistsW(handsPortal)
	if err != nil {
		t.Fatal(err)
	}
	_, _, up, err := h.keeper.ExistsW(handsReplica)
	if err != nil {
		t.Fatal(err)
	}
	h.types(fmt.Sprintf(`nats pub monolith.demo.model.movies.request '{"loadRequested":{"load":{"modelName":"movies","modelDir":"%s","job":"movies","replicas":2}}}'`, h.told("exports")))
	handsHear(t, born, zk.EventNodeCreated, handsPortal)
	handsHear(t, up, zk.EventNodeCreated, handsReplica)
	h.until("Predict answers", func() (bool, string) {
		err := h.predict()
		return err == nil, fmt.Sprint(err)
	})
	data, _, err := h.keeper.Get(handsPortal)
	if err != nil || !strings.Contains(string(data), `"model_dir": "`+h.told("exports")+`"`) {
		t.Errorf("%s holds %s, %v", handsPortal, data, err)
	}
	h.until("the ZooKeeper port shows the replica available", func() (bool, string) {
		data, _, err := h.keeper.Get(handsReplica)
		return err == nil && strings.Contains(string(data), `"stat": 30`), fmt.Sprintf("%s, %v", data, err)
	})
	names, _, err := h.keeper.Children("/demo/service/movies")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"entry:0", "ps:0"}) {
		t.Errorf("services %q, %v", names, err)
	}
	h.hearsStory(t)
}

// hearsStory waits until the listener was told all of a load, and of no heartbeat.
func (h *hands) hearsStory(t *testing.T) {
	want := []string{"loadRequested", "loadAccepted", "planned", "modelCopied", "modelLoading", "registered", "modelAvailable", "stateChanged"}
	h.until("nats sub tells the story", func() (bool, string) {
		var seen []string
		for _, line := range h.live.all() {
			var body map[string]json.RawMessage
			if err := json.Unmarshal([]byte(line), &body); err != nil {
				t.Fatalf("nats sub prints %q: %v", line, err)
			}
			if _, chatter := body["container"]; chatter {
				t.Fatalf("nats sub prints a heartbeat: %s", line)
			}
			for kind := range body {
				seen = append(seen, kind)
			}
		}
		missing := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return slices.Contains(seen, k) })
		return len(missing) == 0, fmt.Sprintf("%q are missing in %q", missing, seen)
	})
}

func (h *hands) reqLoads(t *testing.T) {
	_, line, _ := strings.Cut(h.banner, "Load the model: ") // as the banner says it
	out, _ := h.types(strings.Replace(strings.TrimSpace(line), " req ", " req --raw ", 1))
	var reply struct{ Seq uint64 }
	if err := json.Unmarshal([]byte(out), &reply); err != nil || reply.Seq == 0 {
		t.Fatalf("%s: %s, %v", line, out, err)
	}
	var fact history.Line
	seq := strconv.FormatUint(reply.Seq, 10)
	h.monolith(&fact, "events", "--json", "--since", seq, "--until", seq)
	if fact.Seq != reply.Seq || fact.Type != "loadAccepted" || fact.Subject != "monolith.demo.model.movies" {
		t.Errorf("fact %s is %+v", seq, fact)
	}
}

func (h *hands) soFar(t *testing.T) {
	out, _ := h.types("nats sub 'monolith.demo.model.>' --stream MONOLITH --all --raw --count 3 --wait 60s")
	if first, rest := strings.Index(out, `{"declared":`), strings.Index(out, `{"loadRequested":`); first < 0 || rest < first || !strings.Contains(out, `{"loadAccepted":`) {
		t.Errorf("nats sub --stream MONOLITH --all:\n%s", out)
	}
}

// handsLetter is a dead letter as monolith dlq ls --json prints it.
type handsLetter struct {
	Seq          uint64
	Reason, By   string
	Data         []byte
	Subject      string
	Redriven     bool
	Stream       string
	StreamSeq    uint64 `json:"stream_seq"`
	Time         time.Time
	HeaderIgnore any `json:"header"`
}

func (h *hands) malformed(t *testing.T) {
	h.types(`nats pub monolith.demo.model.movies.request '{"unloadRequested":'`)
	var letters []handsLetter
	h.until("it is parked", func() (bool, string) {
		h.monolith(&letters, "dlq", "ls", "--json")
		return len(letters) > 0, "no letters"
	})
	l := letters[0]
	if len(letters) != 1 || l.By != "portal" || l.Stream != "MONOLITH" || l.Subject != "monolith.demo.model.movies.request" ||
		string(l.Data) != `{"unloadRequested":` || !strings.Contains(l.Reason, "not a JSON object") || l.Redriven {
		t.Fatalf("letters %+v", letters)
	}
	if out := h.monolith(nil, "dlq", "ls"); !strings.Contains(out, "not a JSON object") || !strings.Contains(out, fmt.Sprintf("MONOLITH %d", l.StreamSeq)) {
		t.Errorf("dlq ls:\n%s", out)
	}
	h.mends(t, l)
}

// mends sends a letter again with a body that unloads the model, and sees it go.
func (h *hands) mends(t *testing.T, l handsLetter) {
	var letters []handsLetter
	data, _, changed, err := h.keeper.GetW(handsReplica)
	if err != nil || !strings.Contains(string(data), `"stat": 30`) {
		t.Fatalf("%s holds %s, %v", handsReplica, data, err)
	}
	_, _, gone, err := h.keeper.ExistsW(handsPortal)
	if err != nil {
		t.Fatal(err)
	}
	mended := filepath.Join(t.TempDir(), "mended.json")
	if err := os.WriteFile(mended, []byte(`{"unloadRequested":{"reason":"no longer needed"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var again struct{ Seq uint64 }
	h.monolith(&again, "dlq", "redrive", strconv.FormatUint(l.Seq, 10), "--data", mended)
	if again.Seq <= l.StreamSeq {
		t.Errorf("redriven as %d behind %d", again.Seq, l.StreamSeq)
	}
	handsHear(t, gone, zk.EventNodeDeleted, handsPortal)
	select { // by way of another state, or at once
	case e := <-changed:
		if e.Path != handsReplica || e.Type != zk.EventNodeDataChanged && e.Type != zk.EventNodeDeleted {
			t.Errorf("the replica's watch hears %+v", e)
		}
	case <-time.After(handsWithin):
		t.Error("the replica's watch hears nothing")
	}
	h.until("Predict knows no model", func() (bool, string) {
		err := h.predict()
		return status.Code(err) == codes.NotFound, fmt.Sprint(err)
	})
	h.until("the replica is gone", func() (bool, string) {
		_, _, err := h.keeper.Get(handsReplica)
		return errors.Is(err, zk.ErrNoNode), fmt.Sprint(err)
	})
	h.monolith(&letters, "dlq", "ls", "--json")
	if len(letters) != 1 || !letters[0].Redriven {
		t.Errorf("letters %+v", letters)
	}
}

// handbook is what a new user reads in this order: README, and the guides that it names.
func handbook(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, page := range []string{"README.md", "docs/guides/predict.md", "docs/guides/logs.md", "docs/guides/zookeeper.md"} {
		all.WriteString(read(t, filepath.Join(repository, page)))
	}
	return all.String()
}

// handbookLines are its lines that begin with a word, comments cut off.
func handbookLines(t *testing.T, word string) []string {
	t.Helper()
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(word)+` .*$`).FindAllString(handbook(t), -1) {
		line, _, _ := strings.Cut(m, " #")
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// handbook types the documents' own lines, in their order, into the folder that they were
// written for.
func (h *hands) handbook() {
	h.t.Helper()
	facts := func(kind string) int { return strings.Count(h.monolith(nil, "events", "--json"), `"type":"`+kind+`"`) }
	letters := func() int { return strings.Count(h.monolith(nil, "dlq", "ls"), "\n") }
	keeper := func() {
		var script strings.Builder
		for _, line := range handbookLines(h.t, "zkCli.sh") {
			_, words, ok := strings.Cut(line, "-server 127.0.0.1:2181 ")
			if !ok {
				h.t.Errorf("%s: not on the default port", line)
			}
			fmt.Fprintln(&script, words)
		}
		out := oracle.ZKCli(h.t, h.told("ZooKeeper"), script.String()+"quit\n")
		for _, want := range []string{"/demo/service/movies/ps:0/1\n", `"server_type": "entry", "task": 0`, `"num_shard": 1`} {
			if !strings.Contains(out, want) {
				h.t.Errorf("the documents' zkCli lines never show %q:\n%s", want, out)
			}
		}
	}
	asked := map[string]bool{}
	var served sync.Once // README and a guide both load the model
	for _, line := range handbookLines(h.t, "nats") {
		verb := strings.Fields(line)[1]
		asked[verb] = true
		if verb == "sub" {
			continue // runs all the time
		}
		accepted, parked := facts("loadAccepted"), letters()
		out, stderr := h.types(line)
		all := out + stderr
		switch {
		case verb == "req" && (!strings.Contains(out, "{") && !strings.Contains(out, "[") || strings.Contains(out, `"error"`)):
			h.t.Errorf("%s: %s", line, all)
		case verb == "pub" && strings.Contains(line, "loadRequested"):
			h.until("the load is accepted", func() (bool, string) { return facts("loadAccepted") > accepted, all })
		case verb == "pub":
			h.until("it is parked", func() (bool, string) { return letters() > parked, all })
		case verb == "req" && strings.Contains(line, "portal.load "):
			h.until("Predict answers", func() (bool, string) {
				err := h.predict()
				return err == nil, fmt.Sprint(err)
			})
			served.Do(func() { keeper(); h.snippet() })
		case verb == "stream" && !strings.Contains(out, "MONOLITH_SYNC"):
			h.t.Errorf("%s: %s", line, all)
		}
	}
	for _, verb := range []string{"sub", "pub", "req", "micro"} {
		if !asked[verb] {
			h.t.Errorf("the documents show no nats %s", verb)
		}
	}
}

// snippet runs the documents' Python against the serving port.
func (h *hands) snippet() {
	h.t.Helper()
	m := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(handbook(h.t))
	if m == nil {
		h.t.Fatal("the documents show no Python")
	}
	code := strings.NewReplacer("127.0.0.1:8500", h.told("gRPC"), "timeout=1)", "timeout=60)").Replace(m[1])
	cmd := exec.CommandContext(h.t.Context(), oracle.Python(h.t), "-c", code)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || !regexp.MustCompile(`^\[0\.\d* 0\.\d*\s*\]\n$`).Match(out.Bytes()) {
		h.t.Errorf("the documents' Python prints %s, %v\n%s", &out, err, &errs)
	}
}

// handsHear waits for one watch event.
func handsHear(t *testing.T, ch <-chan zk.Event, kind zk.EventType, path string) {
	t.Helper()
	select {
	case e := <-ch:
		if e.Type != kind || e.Path != path {
			t.Fatalf("heard %+v, want %v on %s", e, kind, path)
		}
	case <-time.After(handsWithin):
		t.Fatalf("no %v on %s", kind, path)
	}
}

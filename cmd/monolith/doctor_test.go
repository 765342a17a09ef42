package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/internal/host/doctor"
	"github.com/monolith-go/monolith/internal/testenv/collector"
)

// wrongHere leaves out how full the disk of the machine is that tests run on.
func wrongHere(f doctor.Finding) bool { return !f.OK && !strings.HasPrefix(f.Check, "disk of ") }

// TestDoctor looks at a stack that is well, and then at what was done to it.
func TestDoctor(t *testing.T) {
	cfg := opsConfig(t.TempDir())
	cfg.Shards, cfg.Replicas, cfg.Trainers = 1, 1, 1
	w := opsServe(t, cfg)
	look := func(more ...string) (code int, found map[string]doctor.Finding) {
		t.Helper()
		code, out, stderr := w.tool(append([]string{"doctor", "--json", "--dir", w.Config.Dir, "--kafka", w.Config.Kafka}, more...)...)
		var all []doctor.Finding
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("%v: %s%s", err, out, stderr)
		}
		found = map[string]doctor.Finding{}
		for _, f := range all {
			found[f.Check] = f
		}
		return code, found
	}
	wrong := func(found map[string]doctor.Finding) (all []string) {
		for _, f := range found {
			if wrongHere(f) {
				all = append(all, fmt.Sprint(f.Check, ": ", f.Says))
			}
		}
		return all
	}
	w.until("nothing to be wrong", func() (bool, string) {
		code, found := look()
		return code == exitOK || len(wrong(found)) == 0, fmt.Sprint(wrong(found))
	})
	_, found := look()
	for _, check := range []string{"NATS", "JetStream storage", "clock", "sync", "stream MONOLITH", "stream MONOLITH_SYNC", "stream MONOLITH_DLQ", "versions", "dead letters",
		"role portal", "role publisher", "role replica-registry", "leases", "heartbeats", "problems", "model movies", "job movies", "ports", "transfers", "topic ratings", "topic predictions"} {
		if !found[check].OK {
			t.Errorf("%s was not looked at: %+v", check, found[check])
		}
	}

	nc := w.plain()
	w.publish(nc, "monolith.demo.model.movies.request", []byte("nonsense"))
	js, err := jetstream.New(nc)
	w.must("open JetStream", err)
	s, err := js.Stream(w.soon(), "MONOLITH")
	w.must("find the log", err)
	conf := s.CachedInfo().Config
	conf.MaxMsgSize /= 2
	_, err = js.UpdateStream(w.soon(), conf)
	w.must("change the log's stream", err)
	w.until("the letter and the stream to be found", func() (bool, string) {
		code, found := look()
		letters, stream := found["dead letters"], found["stream MONOLITH"]
		ok := code == exitFailure && !letters.OK && strings.Contains(letters.Mend, "monolith dlq") && strings.HasSuffix(letters.See, "#a-request-or-a-record-was-refused") &&
			!stream.OK && strings.Contains(stream.Says, "max_msg_size")
		return ok, fmt.Sprint(code, wrong(found))
	})
	if code, found := look("--predictions-topic", "elsewhere"); code != exitFailure || found["topic elsewhere"].OK || !found["topic ratings"].OK {
		t.Errorf("a topic that is not there: %d %v", code, wrong(found))
	}
	telemetryIsAsked(t, look)
	if code, out, _ := opsTool("doctor", "--nats", w.Config.Logs.NATS, "--bzid", "nobody", "--kafka", "", "--dir", ""); code != exitFailure || !strings.Contains(out, "nobody answers for it in namespace nobody") || !strings.Contains(out, "monolith portal") {
		t.Errorf("a namespace without roles: %d %s", code, out)
	}
	code, out, stderr := w.tool("doctor", "--dir", w.Config.Dir, "--kafka", w.Config.Kafka)
	if code != exitFailure || !strings.Contains(out, "WRONG dead letters") || !strings.Contains(out, "      mend: ") || !strings.Contains(stderr, "things are wrong") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	w.halt()
	if code, found := look(); code != exitFailure || found["NATS"].OK || found["topic ratings"].OK {
		t.Errorf("nothing runs: %d %v", code, wrong(found))
	}
	if code, _, stderr := opsTool("doctor", "--nats", "nowhere"); code != exitUsage {
		t.Errorf("a wrong call: %d %v", code, errors.New(stderr))
	}
}

// telemetryIsAsked has the doctor look at a collector that answers, and at one that hangs.
func telemetryIsAsked(t *testing.T, look func(more ...string) (int, map[string]doctor.Finding)) {
	t.Helper()
	c := collector.Start(t)
	_, found := look("--otlp-endpoint", c.Endpoint)
	for _, signal := range []string{"traces", "metrics", "logs"} {
		if f := found["OTLP "+signal]; !f.OK {
			t.Errorf("a collector that answers: %+v", f)
		}
	}
	c.Hang()
	if _, found := look("--otlp-endpoint", c.Endpoint, "--patience", "1s"); found["OTLP logs"].OK || !strings.Contains(found["OTLP logs"].Mend, "OTEL_LOGS_EXPORTER=none") {
		t.Errorf("a collector that hangs: %+v", found["OTLP logs"])
	}
}

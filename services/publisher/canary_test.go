package publisher_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/services/internal/controltest"
	"github.com/monolith-go/monolith/services/publisher"
)

// canaryWorld is a publisher beside a Kafka, with model m planned in version 1.
type canaryWorld struct {
	t       *testing.T
	b       *mem.Bus
	brokers []string
	w       *kafka.Writer
	stop    func()
	rated   int
}

func newCanaryWorld(t *testing.T) *canaryWorld {
	t.Helper()
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: t.TempDir(), Addr: "127.0.0.1:0", Topics: map[string]int32{"r": 2, "p": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	c := &canaryWorld{t: t, b: mem.New(), brokers: []string{broker.Addr()}}
	c.w = kafka.NewWriter(kafka.WriterConfig{Brokers: c.brokers})
	t.Cleanup(func() { c.w.Close() })
	dir := controltest.Export(t, filepath.Join(t.TempDir(), "exported_models"), controltest.Spec("m"), 1, 1, 2, 3)
	c.start()
	seq := store(t, c.b, up("e", "entry", -1), up("p", "ps", 0),
		bus.Draft{Subject: events.Join(controltest.BZID, "model", "m"), Event: &model.Event{Body: &model.Event_Declared{Declared: &model.Declared{Spec: controltest.Spec("m")}}}},
		load("m", dir, 1, 1, 1))
	controltest.Next(t, c.b, seq, controltest.Of("planned"))
	return c
}

// start starts a publisher, which is stopped where one runs.
func (c *canaryWorld) start() {
	c.t.Helper()
	if c.stop != nil {
		c.stop()
	}
	s, err := publisher.New(publisher.Config{Debounce: time.Millisecond, Brokers: c.brokers, RatingsTopic: "r", PredictionsTopic: "p", Recheck: 50 * time.Millisecond}, controltest.Env(c.b))
	if err != nil {
		c.t.Fatal(err)
	}
	c.stop = controltest.Start(c.t, s)
}

// rate has requests answered by version 1, shadowed by another version, and rated.
func (c *canaryWorld) rate(n int, shadow int64, score func(liked bool) float32) {
	c.t.Helper()
	var recs []kafka.Record
	for range n {
		c.rated++
		id, liked := fmt.Sprint("request-", c.rated), c.rated%3 == 0
		stars, good := 2.0, float32(0.3)
		if liked {
			stars, good = 5, 0.7
		}
		recs = append(recs, kafka.Record{Topic: "r", Partition: int32(c.rated % 2), Value: fmt.Appendf(nil, `{"userId":%d,"movieId":2,"rating":%v,"timestamp":1}`, c.rated, stars),
			Headers: map[string]string{impression.HeaderRequest: id, impression.HeaderPosition: strconv.Itoa(0)}})
		for _, i := range []impression.Impression{{Version: 1, Score: good}, {Version: shadow, Score: score(liked), Shadow: true}} {
			i.RequestID, i.Model, i.TookUS = id, "m", 1000
			value, err := impression.Encode(&i)
			if err != nil {
				c.t.Fatal(err)
			}
			recs = append(recs, kafka.Record{Topic: "p", Value: value})
		}
	}
	if _, err := c.w.Write(c.t.Context(), recs...); err != nil {
		c.t.Fatal(err)
	}
}

// begin starts a canary and returns the sequence of its declaration.
func (c *canaryWorld) begin(candidate int) uint64 {
	c.t.Helper()
	var reply struct{ Seq uint64 }
	raw := controltest.MustCall(c.t, c.b, "publisher.canaryStart", fmt.Sprintf(`{"modelName":"m","candidate":"%d","share":1,"rule":{"minRatings":100,"maxAucLoss":0.05}}`, candidate))
	if err := json.Unmarshal([]byte(raw), &reply); err != nil {
		c.t.Fatal(err)
	}
	return reply.Seq
}

func (c *canaryWorld) decided(from uint64) (*publish.CanaryDecided, uint64) {
	c.t.Helper()
	r := controltest.Next(c.t, c.b, from, controltest.Of("canaryDecided"))
	return r.Event.(*publish.Event).GetCanaryDecided(), r.Seq
}

func (c *canaryWorld) refused(command, payload, says string) {
	c.t.Helper()
	if reply, err := controltest.Call(c.t, c.b, command, payload); err == nil || !strings.Contains(err.Error(), says) {
		c.t.Errorf("%s %s: %s, %v; want a refusal that says %q", command, payload, reply, err, says)
	}
}

func good(liked bool) float32 {
	if liked {
		return 0.8
	}
	return 0.2
}

// status holds that the canary's status says so.
func (c *canaryWorld) status(want string) {
	c.t.Helper()
	if got := controltest.MustCall(c.t, c.b, "publisher.canary", `{"modelName":"m"}`); !strings.Contains(got, want) {
		c.t.Errorf("the status is %s, without %s", got, want)
	}
}

// A candidate is judged on what was rated before and after its publisher died, and planned or rolled
// back by one fact that holds the figures.
func TestCanary(t *testing.T) {
	c := newCanaryWorld(t)
	const body = `{"modelName":"m","candidate":"%s","share":0.5,"rule":{"minRatings":1}}`
	c.refused("publisher.canaryStart", fmt.Sprintf(body, "1"), "cannot be its own candidate")
	c.refused("publisher.canaryStart", fmt.Sprintf(body, "9"), "its folder holds the versions [1 2")
	c.refused("publisher.canaryStart", `{"modelName":"m","candidate":"2","share":0.5,"expiresMs":"1","rule":{"minRatings":1}}`, "would have expired at 1970-01-01T00:00:00Z")
	c.refused("publisher.canaryStart", strings.Replace(fmt.Sprintf(body, "2"), `"m"`, `"other"`, 1), "is not loaded")
	c.refused("publisher.canary", `{"modelName":"m"}`, "has had no canary")
	c.refused("publisher.canaryStop", `{"modelName":"m"}`, "no canary that runs")

	c.rate(200, 2, func(bool) float32 { return 0.5 }) // before the declaration: these count for nothing
	seq := c.begin(2)
	c.refused("publisher.canaryStart", fmt.Sprintf(body, "3"), fmt.Sprintf("is a canary since event %d", seq))
	c.rate(60, 2, good)
	c.start() // the publisher that began it is gone
	c.rate(60, 2, good)
	d, at := c.decided(seq)
	if f := d.GetCandidateFigures(); d.GetVerdict() != publish.CanaryDecided_PROMOTED || d.GetCause() != seq || f.GetRatings() < 100 || f.GetRatings() > 120 ||
		f.GetAuc() != 1 || f.GetP99Ms() != 1 || d.GetStableFigures().GetRatings() != f.GetRatings() {
		t.Fatalf("verdict %v", d)
	}
	planned := controltest.Next(t, c.b, at, controltest.Of("planned"))
	if p := planned.Event.(*publish.Event).GetPlanned(); planned.Seq != at+1 || p.GetVersion() != 2 {
		t.Fatalf("after the promotion at %d, at %d: %v", at, planned.Seq, p)
	}

	// Whoever rates for the next one rates version 2 as the stable one; here nobody does, and it is stopped.
	seq = c.begin(3)
	const place = `{"container":"e","sub_model":"entry","available":`
	c.status(place + `false,"reason":"model-sync has not brought it to host \"\" yet"}`)
	store(t, c.b, bus.Draft{Subject: server.Subject(controltest.BZID, "e"), Event: &server.Event{Body: &server.Event_ModelAvailable{
		ModelAvailable: &server.ModelAvailable{Model: &server.Model{ModelName: "m", SubModel: "entry", Version: 3}}}}})
	c.status(place + `true}`)
	controltest.MustCall(t, c.b, "publisher.canaryStop", `{"modelName":"m","reason":"enough"}`)
	if d, _ := c.decided(seq); d.GetVerdict() != publish.CanaryDecided_ROLLED_BACK || d.GetReason() != "enough" {
		t.Errorf("verdict %v", d)
	}
	c.start()
	if n := controltest.Count(t, c.b, controltest.Of("canaryDecided")); n != 2 {
		t.Errorf("%d verdicts after a restart\n%s", n, controltest.Story(t, c.b))
	}
	// Neither the next canary nor its end takes the promotion back.
	if n := controltest.Count(t, c.b, func(r events.Recorded) bool {
		e, _ := r.Event.(*publish.Event)
		return r.Seq > planned.Seq && e.GetPlanned() != nil
	}); n != 0 {
		t.Errorf("%d plans after that of the promotion\n%s", n, controltest.Story(t, c.b))
	}
}

// A candidate that is worse is rolled back and the stable version stays planned; a load ends a canary.
func TestCanaryRollback(t *testing.T) {
	c := newCanaryWorld(t)
	seq := c.begin(2)
	c.rate(150, 2, func(liked bool) float32 { return 1 - good(liked) })
	d, _ := c.decided(seq)
	if f := d.GetCandidateFigures(); d.GetVerdict() != publish.CanaryDecided_ROLLED_BACK || f.GetAuc() != 0 || d.GetStableFigures().GetAuc() != 1 || !strings.Contains(d.GetReason(), "AUC of version 2") {
		t.Fatalf("verdict %v", d)
	}
	var status struct {
		Decided   *struct{ Verdict string }
		Candidate struct{ Auc float64 }
	}
	if err := json.Unmarshal([]byte(controltest.MustCall(t, c.b, "publisher.canary", `{"modelName":"m"}`)), &status); err != nil || status.Decided == nil || status.Decided.Verdict != "ROLLED_BACK" {
		t.Errorf("status %+v, %v", status, err)
	}
	c.begin(3)
	seq = store(t, c.b, unload("m"))
	d, at := c.decided(seq)
	if d.GetVerdict() != publish.CanaryDecided_ROLLED_BACK || !strings.Contains(d.GetReason(), "unloaded") {
		t.Errorf("verdict %v", d)
	}
	controltest.Next(t, c.b, at, controltest.Of("withdrawn"))
	if n := controltest.Count(t, c.b, func(r events.Recorded) bool {
		e, _ := r.Event.(*publish.Event)
		return e.GetPlanned().GetVersion() > 1
	}); n != 0 {
		t.Errorf("a version that was rolled back is planned\n%s", controltest.Story(t, c.b))
	}
}

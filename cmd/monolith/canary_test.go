package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/publish"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/rating"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// canaryPairs is how many pairs of user and movie a request asks for, over all shards.
const canaryPairs = 64

// canaryRun is a system of processes that serves version 1 of three, none of which follows deltas: a
// version has one score for each pair.
type canaryRun struct {
	*opsWorld
	killed  *played
	predict *tfserving.PredictionClient
	scores  map[int64][]float32 // of all pairs, by version
	asked   int
	by      map[int64]int // answers by version
}

func startCanaryRun(t *testing.T) *canaryRun {
	t.Setenv(binaryEnv, "1") // the children of this process are monolith
	cfg := opsConfig(filepath.Join(t.TempDir(), "data"))
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Processes, cfg.Replicas, cfg.Trainers, cfg.GRPCPort = true, 1, 1, port // one that a new process has too
	c := &canaryRun{opsWorld: opsStart(t, cfg), killed: &played{dir: cfg.Dir}, scores: map[int64][]float32{}, by: map[int64]int{}}
	for range 2 {
		c.rate(400)
		c.learnt()
		_, err := c.job.Checkpoint(c.soon(), "a version")
		c.must("checkpoint", err)
	}
	_, err = c.job.Load(c.soon(), &model.Load{ModelName: host.ModelName, ModelDir: c.Exports(), Version: 1, Replicas: 1})
	c.must("load version 1", err)
	_, err = c.job.AwaitServing(c.soon(), host.ModelName, cfg.Shards, cfg.Replicas)
	c.must("wait for version 1", err)
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	c.must("dial the entry", err)
	t.Cleanup(func() { conn.Close() })
	c.predict = tfserving.NewPredictionClient(conn)
	c.know(1)
	return c
}

// ask sends all pairs and returns the scores and the version that gave them.
func (c *canaryRun) ask(id string, version int64) ([]float32, int64, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 5*time.Second)
	defer cancel()
	if id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, scenario.RequestIDKey, id, scenario.ImpressionKey, "1")
	}
	var users, movies []int64
	for i := range canaryPairs {
		r := opsRating(i)
		users, movies = append(users, r.User), append(movies, r.Movie)
	}
	res, err := c.predict.Predict(ctx, &apis.PredictRequest{ModelSpec: tfserving.Spec(host.ModelName, version),
		Inputs: map[string]*tfserving.TensorProto{"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}})
	if err != nil {
		return nil, 0, err
	}
	scores, err := tfserving.Floats(nil, res.GetOutputs()["score"], canaryPairs)
	return scores, res.GetModelSpec().GetVersion().GetValue(), err
}

// know waits until a version answers who names it, and keeps its scores.
func (c *canaryRun) know(version int64) {
	c.t.Helper()
	c.until(fmt.Sprint("version ", version), func() (bool, string) {
		scores, _, err := c.ask("", version)
		c.scores[version] = scores
		return err == nil, fmt.Sprint(err)
	})
}

// request asks, naming no version, and returns who answered; the answer is one version's, wholly. An
// error is no answer: while a process is dead there may be none.
func (c *canaryRun) request() (id string, version int64, err error) {
	c.t.Helper()
	c.asked++
	id = fmt.Sprint("canary-", c.asked)
	scores, version, err := c.ask(id, 0)
	if err != nil {
		return id, 0, err
	}
	if want := c.scores[version]; want == nil || !slices.Equal(scores, want) {
		c.t.Fatalf("%s: version %d answered %v, and its scores are %v", id, version, scores, want)
	}
	c.by[version]++
	return id, version, nil
}

// rated writes what became of rows of a request.
func (c *canaryRun) rated(id string, liked map[int]bool) {
	c.t.Helper()
	var recs []kafka.Record
	for row, like := range liked {
		r := opsRating(row)
		if r.Rating = 1; like {
			r.Rating = 5
		}
		recs = append(recs, kafka.Record{Topic: c.Config.Topics.Ratings, Partition: int32(row % c.Config.Partitions), Value: r.AppendJSON(nil),
			Headers: map[string]string{rating.HeaderRequest: id, rating.HeaderPosition: strconv.Itoa(row)}})
	}
	c.write(recs...)
}

// kill is kill -9 of a task, with requests until it is up again.
func (c *canaryRun) kill(task string) {
	c.t.Helper()
	was := c.killed.pid(task, os.Getpid())
	if was == 0 {
		c.t.Fatalf("%s has no process", task)
	}
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.t.Fatal(err)
	}
	c.until(task+" to be up again", func() (bool, string) {
		c.request()
		now := c.killed.pid(task, os.Getpid())
		return now != 0 && now != was, fmt.Sprint("process ", now)
	})
}

// canary is monolith canary with these arguments.
func (c *canaryRun) canary(args ...string) string {
	c.t.Helper()
	var out string
	c.until("monolith canary "+args[0], func() (bool, string) {
		code, text, errs := c.tool(append([]string{"canary"}, args...)...)
		out = text
		return code == exitOK, errs // a publisher that was killed answers once it leads again
	})
	return out
}

// verdict has requests answered and rated until there is one, and returns the status that shows it.
func (c *canaryRun) verdict(liked map[int]bool) (status string) {
	c.t.Helper()
	c.until("a verdict", func() (bool, string) {
		id, _, err := c.request()
		if err == nil {
			c.rated(id, liked)
		}
		status = c.canary("status", host.ModelName)
		return !strings.Contains(status, "it runs until"), fmt.Sprint(status, err)
	})
	return status
}

// everybody waits until a version answers whoever names none, and another one nobody.
func (c *canaryRun) everybody(version, gone int64) {
	c.t.Helper()
	c.until(fmt.Sprintf("version %d, and not %d", version, gone), func() (bool, string) {
		_, by, failed := c.request()
		_, _, err := c.ask("", gone)
		return by == version && err != nil, fmt.Sprint("answered by ", by, ", ", failed, "; ", err)
	})
	for range 20 {
		if id, by, err := c.request(); by != version {
			c.t.Errorf("%s was answered by version %d after the verdict, %v", id, by, err)
		}
	}
}

// decisions are what the publisher has said of the model, in order.
func (c *canaryRun) decisions() (said []string) {
	c.t.Helper()
	last, err := c.job.Bus.Log().Last(c.soon())
	c.must("find the end of the log", err)
	c.must("read the log", c.job.Bus.Log().Follow(c.soon(), 1, last, func(r events.Recorded) error {
		e, _ := r.Event.(*publish.Event)
		switch {
		case e.GetPlanned() != nil:
			said = append(said, fmt.Sprint("planned ", e.GetPlanned().GetVersion()))
		case e.GetCanaryDeclared() != nil:
			said = append(said, fmt.Sprint("canary ", e.GetCanaryDeclared().GetCandidate()))
		case e.GetCanaryDecided() != nil:
			said = append(said, fmt.Sprint(e.GetCanaryDecided().GetVerdict(), " ", e.GetCanaryDecided().GetCandidate()))
		}
		return nil
	}))
	return slices.Compact(said) // a plan is said again where containers come back
}

// misranked are labels under which one version's scores are in perfect order, and another one's are not.
func misranked(t *testing.T, good, bad []float32) map[int]bool {
	t.Helper()
	middle := slices.Sorted(slices.Values(good))[canaryPairs/2]
	var above, below []int
	for i, s := range good {
		if s > middle {
			above = append(above, i)
		} else {
			below = append(below, i)
		}
	}
	byBad := func(a, b int) int { return cmp.Compare(bad[a], bad[b]) }
	slices.SortFunc(above, byBad)
	slices.SortFunc(below, byBad)
	liked := map[int]bool{}
	wrong := 0
	for k := range 6 {
		up, down := above[k], below[len(below)-1-k]
		liked[up], liked[down] = true, false
		if bad[up] < bad[down] {
			wrong++
		}
	}
	if wrong < 4 {
		t.Fatalf("the versions order the pairs too much alike: %v and %v", good, bad)
	}
	return liked
}

// A candidate is started by command, answers its share while each process is killed, and is promoted by
// its rule; the next one, which is worse, is rolled back. Every answer is one version's, and each verdict
// is one fact.
func TestCanary(t *testing.T) {
	c := startCanaryRun(t)
	lenient := []string{"--max-auc-loss=1", "--max-calibration-gap=0", "--max-p99-ratio=0"}
	c.canary(append([]string{"start", host.ModelName, "--candidate=2", "--share=0.5", "--mode=answer", "--min-ratings=320"}, lenient...)...)
	c.know(2)
	everyThird := map[int]bool{}
	for i := range canaryPairs {
		everyThird[i] = i%3 == 0
	}
	for range 4 { // some of what the rule asks for
		id, _, err := c.request()
		c.must("ask", err)
		c.rated(id, everyThird)
	}
	for _, task := range []string{"publisher", "model-sync", "portal", "serving-0-0", "entry-0", "replica-registry", "ps-1", "trainer-0", "serving-1-0", "publisher"} {
		c.kill(task)
	}
	c.know(2) // the candidate is back, too
	if status := c.canary("status", host.ModelName); !strings.Contains(status, "it runs until") {
		t.Fatalf("decided on too little:\n%s", status)
	}
	if status := c.verdict(everyThird); !strings.Contains(status, "promoted: version 2 keeps to every bound of the rule") {
		t.Fatalf("the verdict is\n%s", status)
	}
	c.kill("publisher")
	c.everybody(2, 1)
	if c.by[1] == 0 || c.by[2] == 0 {
		t.Errorf("answers by version: %v", c.by)
	}

	c.canary("start", host.ModelName, "--candidate=3", "--share=1", "--mode=shadow", "--min-ratings=120", "--max-auc-loss=0.2", "--max-calibration-gap=0", "--max-p99-ratio=0")
	c.know(3)
	for _, task := range []string{"entry-0", "publisher", "serving-1-0"} {
		c.kill(task)
	}
	c.know(3)
	worse := misranked(t, c.scores[2], c.scores[3])
	if status := c.verdict(worse); !strings.Contains(status, "rolled back: the AUC of version 3 is") {
		t.Fatalf("the verdict is\n%s", status)
	}
	c.kill("publisher")
	c.everybody(2, 3)
	if c.by[3] > 0 {
		t.Errorf("a shadow answered %d requests", c.by[3])
	}
	if got, want := c.decisions(), []string{"planned 1", "canary 2", "PROMOTED 2", "planned 2", "canary 3", "ROLLED_BACK 3"}; !slices.Equal(got, want) {
		t.Errorf("the log says %q, want %q", got, want)
	}
}

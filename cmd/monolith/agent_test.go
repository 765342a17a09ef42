package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// monolith agent serves an agent.conf with this program's own model server where no other is named:
// shards first, then the entry. When one of them is killed all end.
func TestAgentStartsTheBuiltInServer(t *testing.T) {
	d := newDropIn(t)
	d.trained(10)
	users, movies, scores := d.expected()
	srv, err := natsserver.Start(natsserver.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	startChild(t, "replica-registry", "--nats", srv.URL(), "--zk-listen", "", "--listen", "")
	rest, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	d.at.HTTP = net.JoinHostPort("127.0.0.1", strconv.Itoa(rest))
	conf := filepath.Join(t.TempDir(), "agent.conf")
	shards, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("bzid demo\ndeploy_type mixed\nbase_name movies\nbase_path %s\nnum_ps 2\ntfs_entry_http_port %d\ntfs_ps_port %d\n", d.exports, rest, shards)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"SHARD_ID": "0", "REPLICA_ID": "0", "MONOLITH_TFS_BINARY": "", "TENSORFLOW_MODEL_SERVER": ""} {
		t.Setenv(key, value)
	}
	a := startChild(t, "agent", "--nats", srv.URL(), "--conf", conf, "--dir", t.TempDir(), "--log-level", "info")
	wait.For(t, "the entry answers", func() bool {
		select {
		case <-a.done:
			t.Fatalf("the agent ended: %v\n%s", a.state, tail(a.err.String()))
		default:
		}
		c, err := net.DialTimeout("tcp", d.at.HTTP, time.Second)
		return err == nil && c.Close() == nil
	})
	d.until("entry", d.newest(), "AVAILABLE")
	d.answers("entry", users, movies, scores)
	d.pushed("entry", fmt.Sprint("127.0.0.1:", shards), users[0], movies[0])

	pid := regexp.MustCompile(`"model server started".* container=\S*-ps pid=(\d+)`).FindStringSubmatch(a.err.String())
	if pid == nil {
		t.Fatalf("the agent does not say which process serves the shards:\n%s", tail(a.err.String()))
	}
	n, err := strconv.Atoi(pid[1])
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t, wait.Patience); err == nil {
		t.Error("the agent ended well though one of its servers was killed")
	}
	if c, err := net.DialTimeout("tcp", d.at.HTTP, time.Second); err == nil {
		c.Close()
		t.Error("the entry outlives its agent")
	}
}

// pushed overwrites rows of a user and of a movie at the shards that have them, as the original's training
// does: the entry answers with what was pushed. Zeros are what ids have that nobody has learnt of.
func (d *dropIn) pushed(entry, shards string, user, movie int64) {
	d.t.Helper()
	score := func(user, movie int64) float64 {
		_, body := d.rest(entry+":predict", fmt.Sprintf(`{"instances":[{"user":%d,"movie":%d}]}`, user, movie))
		var got struct{ Predictions []float64 }
		if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Predictions) != 1 {
			d.t.Fatalf("%s: %v", body, err)
		}
		return got.Predictions[0]
	}
	unknown := score(1<<40, 1<<41)
	if before := score(user, movie); before == unknown {
		d.t.Fatalf("user %d and movie %d score %v as those that nobody knows", user, movie, before)
	}
	conn, err := grpc.NewClient(shards, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	const dim = 17 // a weight and a vector, see deepfm.yaml
	for table, fid := range map[string]int64{"user": modelspec.FID(1, user), "movie": modelspec.FID(2, movie)} {
		req := &apis.PredictRequest{ModelSpec: tfserving.Spec(fmt.Sprint("ps_", modelspec.ShardOf(fid, 2)), 0), Inputs: map[string]*tfserving.TensorProto{
			table + "_id": tfserving.NewInt64([]int64{fid}), table + "_value": tfserving.NewFloat(make([]float32, dim), 1, dim)}}
		req.ModelSpec.SignatureName = "hashtable_assign"
		if _, err := tfserving.NewPredictionClient(conn).Predict(d.t.Context(), req); err != nil {
			d.t.Fatal(err)
		}
	}
	if after := score(user, movie); after != unknown {
		d.t.Errorf("the entry scores %v after its shards were given zeros, and %v where it knows nobody", after, unknown)
	}
}

package trainer

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/compat/controllerpb"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/trainer/controller"
)

// controllerAt waits until the job's chief has written where its controller is, and it is not at before.
func (w *world) controllerAt(before string) (addr string) {
	w.t.Helper()
	wait.Seen(w.t, "the controller's address is written", func() (string, bool) {
		text, err := os.ReadFile(filepath.Join(w.dir, controller.AddressFile))
		addr = string(text)
		return addr, err == nil && addr != "" && addr != before
	})
	return addr
}

// TestController: the original's service pauses the job, has it go on, saves it and tells how it is;
// the next chief serves it in its turn.
func TestController(t *testing.T) {
	w := newWorld(t, 2, 2)
	w.write(50)
	cfg := w.config("a", 0)
	cfg.Controller, cfg.ActionEvery = "127.0.0.1:0", time.Second
	a := w.run(cfg)
	w.learnt(0, 100)
	w.learnt(1, 100)
	addr := w.controllerAt("")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c, ctx := controllerpb.NewControllerClient(conn), t.Context()
	if st, err := c.GetBlockStatus(ctx, &controllerpb.GetBlockStatusRequest{}); err != nil || len(st.GetBlockedIndices()) != 0 || !slices.Equal(st.GetUnblockedIndices(), []int32{0}) {
		t.Errorf("blocks of a job that learns: %v, %v", st, err)
	}
	if _, err := c.StopTraining(ctx, &controllerpb.StopTrainingRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StopTraining(ctx, &controllerpb.StopTrainingRequest{}); status.Code(err) != codes.AlreadyExists || !strings.HasPrefix(status.Convert(err).Message(), "Barrier is placed already.") {
		t.Errorf("a second stop: %v", err)
	}
	if st, err := c.GetBlockStatus(ctx, &controllerpb.GetBlockStatusRequest{}); err != nil || !slices.Equal(st.GetBlockedIndices(), []int32{0}) || len(st.GetUnblockedIndices()) != 0 {
		t.Errorf("blocks of a paused job: %v, %v", st, err)
	}
	before := w.status("status", `{}`).Checkpoint
	if _, err := c.SaveCheckpoint(ctx, &controllerpb.SaveCheckpointRequest{}); err != nil {
		t.Fatal(err)
	}
	w.until("the checkpoint is there", func(j lineage.Job) bool {
		return j.LastID > before && len(j.Checkpoints) > 0 && j.Checkpoints[len(j.Checkpoints)-1].V.GetId() == j.LastID
	})
	if _, err := c.GetTrainingStatus(ctx, &controllerpb.GetTrainingStatusRequest{}); err != nil {
		t.Error(err)
	}
	for range 2 { // never fails
		if _, err := c.ResumeTraining(ctx, &controllerpb.ResumeTrainingRequest{}); err != nil {
			t.Error(err)
		}
	}
	w.until("the job goes on", func(j lineage.Job) bool { return j.Paused.Seq == 0 })

	cfg.Name, cfg.Index = "b", 1
	b := w.run(cfg)
	a.stop(t)
	w.controllerAt(addr)
	action := filepath.Join(w.dir, controller.ActionFile)
	if err := os.WriteFile(action, []byte("action: STOP"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.wait(t)
	j := w.until("the action is carried out", func(j lineage.Job) bool { return j.Stopped })
	if _, err := os.Stat(action); err == nil {
		t.Error("the action file is left, and would stop the job again")
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, controller.ResponseFile)); err != nil || string(got) != "OK" {
		t.Errorf("the answer is %q, %v", got, err)
	}
	if j.Checkpoints[len(j.Checkpoints)-1].V.GetOffsets()[0] != 50 {
		t.Errorf("the job stopped at %v", j.Checkpoints[len(j.Checkpoints)-1].V.GetOffsets())
	}
}

// A client in Python that knows the service by its name alone.
const pythonController = `
import grpc, sys
channel = grpc.insecure_channel(open(sys.argv[1]).read())
def call(method):
    try:
        ask = channel.unary_unary('/Controller/' + method, request_serializer=bytes, response_deserializer=bytes)
        return ask(b'', timeout=60, wait_for_ready=True).hex()
    except grpc.RpcError as e:
        return e.code().name
for m in ['GetBlockStatus', 'StopTraining', 'StopTraining', 'GetBlockStatus', 'SaveCheckpoint', 'ResumeTraining', 'ResumeTraining']:
    print(m, call(m))
`

func TestControllerFromPython(t *testing.T) {
	python := oracle.Python(t)
	w := newWorld(t, 1, 1)
	w.write(20)
	cfg := w.config("a", 3)
	cfg.Controller = "127.0.0.1:0"
	a := w.run(cfg)
	w.learnt(0, 20)
	w.controllerAt("")
	out, err := exec.CommandContext(t.Context(), python, "-c", pythonController, filepath.Join(w.dir, controller.AddressFile)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := string(out)
	want := "GetBlockStatus 120103\nStopTraining \nStopTraining ALREADY_EXISTS\nGetBlockStatus 0a0103\nSaveCheckpoint \nResumeTraining \nResumeTraining \n"
	if got != want {
		t.Errorf("Python reads\n%s, want\n%s", got, want)
	}
	a.stop(t)
}

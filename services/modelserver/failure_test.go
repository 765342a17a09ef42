package modelserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

func TestFailedLoadShowsWhy(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	files, err := filepath.Glob(filepath.Join(w.path("ps_0", 1), "*"))
	if err != nil || len(files) == 0 {
		t.Fatal("the export has no files", err)
	}
	var broken string
	var whole []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 64 && !bytes.HasPrefix(b, []byte("{")) {
			broken, whole = f, b
		}
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	if err := os.WriteFile(broken, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.serve("c0")
	if err := s.load(1, "ps_0"); status.Code(err) != codes.DataLoss {
		t.Fatalf("load of a corrupt export: %v, want DataLoss", err)
	}
	res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker+":ps_0", 1)})
	if err != nil {
		t.Fatal(err)
	}
	v := res.GetModelVersionStatus()[0]
	if v.GetState() != apis.ModelVersionStatus_END || v.GetStatus().GetErrorMessage() == "" {
		t.Fatalf("status of a failed load: %v", v)
	}
	if problem := s.health.Summary(); problem != "" {
		t.Errorf("one failure is reported already: %s", problem)
	}
	for n := range 2 { // its supervisor sends the configuration again and again
		s.mustLoad(1, "ps_0")
		wait.Until(t, "another try", func() error {
			if got := s.counted(t, "monolith_modelserver_load_total", "failed"); got != float64(n+2) || s.versions("ps_0")[0] != "1 END" {
				return fmt.Errorf("%v loads failed, %v", got, s.versions("ps_0"))
			}
			return nil
		})
	}
	wait.Until(t, "a problem", func() error {
		if problem := s.health.Summary(); !strings.HasPrefix(problem, "load ranker:ps_0: ") {
			return fmt.Errorf("after three failures the health says %q", problem)
		}
		return nil
	})
	if err := os.WriteFile(broken, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	// The same configuration again is another try.
	s.mustLoad(1, "ps_0")
	wait.Until(t, "second try", func() error {
		res, err := s.models.GetModelStatus(testContext(t), &apis.GetModelStatusRequest{ModelSpec: tfserving.Spec(ranker+":ps_0", 1)})
		if err != nil {
			return err
		}
		if got := res.GetModelVersionStatus()[0].GetState(); got != apis.ModelVersionStatus_AVAILABLE {
			return errors.New(got.String())
		}
		return nil
	})
	wait.Seen(t, "no problem any more", func() (string, bool) { return s.health.Summary(), s.health.Summary() == "" })
}

package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
)

// TestSummaries: a trainer's figures go into event files of its own, another one with each start.
// internal/model/tfevents has TensorBoard read such files.
func TestSummaries(t *testing.T) {
	w := newWorld(t, 1, 1)
	cfg := w.config("a", 0)
	cfg.SummaryDir = t.TempDir()
	for starts := 1; starts <= 2; starts++ {
		w.write(200)
		a := w.start(cfg, func(*services.Env) {}, func(s *Server) { s.reportEvery, s.lagEvery = 50*time.Millisecond, 10*time.Millisecond })
		w.learnt(0, int64(200*starts))
		wait.Seen(t, "figures are summarized", func() (string, bool) {
			files, err := filepath.Glob(filepath.Join(cfg.SummaryDir, "a", "events.out.tfevents.*"))
			if err != nil || len(files) != starts {
				return fmt.Sprint(files, err), false
			}
			raw, err := os.ReadFile(files[starts-1])
			if err != nil {
				return err.Error(), false
			}
			var whole []byte
			records, r := 0, tfrecord.NewReader(bytes.NewReader(raw), 1<<20)
			for ; ; records++ {
				rec, err := r.Next()
				if err != nil {
					return fmt.Sprint(records, " records, ", err), errors.Is(err, io.EOF) && records > 1 && bytes.Contains(whole, []byte("brain.Event:2")) &&
						bytes.Contains(whole, []byte("loss")) && bytes.Contains(whole, []byte("samples_per_second")) && bytes.Contains(whole, []byte("lag_records"))
				}
				whole = append(whole, rec...)
			}
		})
		a.stop(t)
	}
}

package modelserver_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/services"
	"github.com/monolith-go/monolith/services/modelserver"
)

// Requests that are computed together are answered as each by itself, and those that are wrong spoil no
// other.
func TestBatchedRequests(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s, subs := w.one(2, func(c *modelserver.Config) {
		c.EnableBatching = true
		c.BatchingParametersFile = textFile(t, `max_batch_size { value: 16 } num_batch_threads { value: 1 } max_enqueued_batches { value: 1000 } batch_timeout_micros { value: 500 } pad_variable_length_inputs: true`)
	})
	s.mustLoad(1, subs...)
	wait.Until(t, "the first answer", func() error { return s.check([]int64{1}, []int64{2}) })
	var callers sync.WaitGroup
	for c := range int64(16) {
		callers.Go(func() {
			for i := range int64(20) {
				if err := s.check([]int64{c, i}, []int64{i, c}); err != nil {
					t.Errorf("caller %d: %v", c, err)
					return
				}
				if _, err := s.scores([]int64{c, -1}, []int64{i, c}); err == nil || !strings.Contains(err.Error(), "id -1 is outside") {
					t.Errorf("caller %d sent a wrong id: %v", c, err)
					return
				}
			}
		})
	}
	callers.Wait()
	if _, err := s.scores(make([]int64, 17), make([]int64, 17)); err == nil || !strings.Contains(err.Error(), "Task size 17 is larger than maximum input batch size 16") {
		t.Errorf("more rows than a batch has: %v", err)
	}
}

func TestWrongBatchingParameters(t *testing.T) {
	for text, says := range map[string]string{
		`max_batch_size: 3`:                        "is no BatchingParameters in text form",
		`max_batch_size { value: 0 }`:              "max_batch_size is 0; name 1 or more",
		`batch_timeout_micros { value: -1 }`:       "batch_timeout_micros is -1",
		`num_batch_threads { value: 1000000 }`:     "at most 65536 and 1024",
		`max_enqueued_batches { value: 0 } `:       "max_enqueued_batches is 0",
		`thread_pool_name { value: "x" } what: 1 `: "is no BatchingParameters in text form",
	} {
		cfg := modelserver.Config{Container: "c", EnableBatching: true, BatchingParametersFile: textFile(t, text)}
		if _, err := modelserver.New(cfg, services.Env{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	cfg := modelserver.Config{Container: "c", BatchingParametersFile: "f"}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "without --enable-batching") {
		t.Errorf("a file without batching: %v", err)
	}
}

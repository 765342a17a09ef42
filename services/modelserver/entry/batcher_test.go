package entry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// bench is a Batcher in simulated time whose batches take until they are let go, and what they held.
type bench struct {
	t *testing.T
	*Batcher
	m    *Model
	stop func()

	takes time.Duration // of a batch; 0: until it is let go
	goOn  chan struct{}

	mu       sync.Mutex
	computed []int // rows, by batch
	ended    int   // batches whose callers had all left
}

func newBench(t *testing.T, p Batching) *bench {
	b := &bench{t: t, Batcher: NewBatcher(p, nil), m: newEntry(t), goOn: make(chan struct{})}
	b.compute = func(ctx context.Context, m *Model, jobs []*job) {
		rows := 0
		for _, j := range jobs {
			rows += j.scratch.batch.Len()
		}
		b.mu.Lock()
		b.computed = append(b.computed, rows)
		b.mu.Unlock()
		if b.takes > 0 {
			time.Sleep(b.takes)
		} else {
			<-b.goOn
		}
		if ctx.Err() != nil {
			b.mu.Lock()
			b.ended++
			b.mu.Unlock()
		}
		for _, j := range jobs { // each its first user
			j.scores = [][]float32{{float32(signature(j.scratch.batch.IDs(0, 0)[0]))}}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.run(ctx); close(done) }()
	b.stop = func() { cancel(); <-done }
	return b
}

// ask asks about rows of a user, and says later what became of it.
func (b *bench) ask(ctx context.Context, user int64, rows int) (answer func() (float32, error)) {
	b.t.Helper()
	sc := b.m.scratches.Get().(*scratch)
	users, movies := make([]int64, rows), make([]int64, rows)
	for i := range users {
		users[i] = user
	}
	if err := sc.load(b.m, Input{Tensors: map[string]*tfserving.TensorProto{"user": tfserving.NewInt64(users), "movie": tfserving.NewInt64(movies)}}, 1<<10); err != nil {
		b.t.Fatal(err)
	}
	j := &job{ctx: ctx, scratch: sc, done: make(chan struct{})}
	err := error(nil)
	said := make(chan struct{})
	go func() { defer close(said); err = b.answer(b.m, j) }()
	synctest.Wait()
	return func() (float32, error) {
		<-said
		if err != nil {
			return 0, err
		}
		return j.scores[0][0], nil
	}
}

func (b *bench) batches(want ...int) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.computed, want) {
		b.t.Errorf("batches of %v rows, want %v", b.computed, want)
	}
}

// An idle server waits for nobody; a busy one gathers what comes, up to full batches, and each gets its own.
func TestRequestsGatherWhileOthersAreComputed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Batching{MaxRows: 4, Timeout: time.Hour, MaxEnqueued: 9, Threads: 1})
		defer b.stop()
		answers := map[int64]func() (float32, error){1: b.ask(t.Context(), 1, 1)}
		b.batches(1)
		for user := int64(2); user <= 6; user++ {
			answers[user] = b.ask(t.Context(), user, 2)
		}
		b.batches(1)
		for range 4 {
			b.goOn <- struct{}{}
		}
		for user, answer := range answers {
			if got, err := answer(); err != nil || got != float32(user) {
				t.Errorf("user %d: %v, %v", user, got, err)
			}
		}
		b.batches(1, 4, 4, 2)
		if b.busy != 0 || b.waiting.Len() != 0 || len(b.queues) != 0 {
			t.Errorf("idle: %d threads compute, %d batches wait", b.busy, b.waiting.Len())
		}
	})
}

// Beside a batch that is computed another one waits for more, but no longer than it may, nor once it is full.
func TestABatchWaitsBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Batching{MaxRows: 4, Timeout: 10 * time.Millisecond, MaxEnqueued: 9, Threads: 3})
		defer b.stop()
		all := []func() (float32, error){b.ask(t.Context(), 1, 1), b.ask(t.Context(), 2, 1)}
		b.batches(1)
		time.Sleep(9 * time.Millisecond)
		all = append(all, b.ask(t.Context(), 3, 1))
		b.batches(1)
		time.Sleep(time.Millisecond)
		b.batches(1, 2)
		all = append(all, b.ask(t.Context(), 4, 3))
		b.batches(1, 2)
		all = append(all, b.ask(t.Context(), 5, 1))
		b.batches(1, 2, 4)
		for range 3 {
			b.goOn <- struct{}{}
		}
		for _, answer := range all {
			if _, err := answer(); err != nil {
				t.Error(err)
			}
		}
	})
}

// What there is no room for is refused at once, and never asked of an older version.
func TestAFullQueueIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Batching{MaxRows: 2, MaxEnqueued: 2, Threads: 1})
		defer b.stop()
		b.takes = 80 * time.Millisecond
		var waits []func() (float32, error)
		for user := range int64(3) {
			waits = append(waits, b.ask(t.Context(), user, 2))
		}
		began := time.Now()
		_, err := b.ask(t.Context(), 3, 2)()
		if status.Code(err) != codes.Unavailable || !errors.As(err, new(overloaded)) || !strings.Contains(fmt.Sprint(err), "currently 2 batches enqueued and max_enqueued_batches is 2") || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, answer := range waits {
			if _, err := answer(); err != nil {
				t.Error(err)
			}
		}
		if got := testutil.ToFloat64(b.refused); got != 1 {
			t.Errorf("%v refused", got)
		}
	})
}

// Rows of callers that leave are not computed; where all have left, what is computed ends.
func TestCallersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Batching{MaxRows: 9, MaxEnqueued: 2, Threads: 1})
		first := b.ask(t.Context(), 1, 1)
		var leaves []func()
		var answers []func() (float32, error)
		for user := range int64(4) {
			ctx, leave := context.WithCancel(t.Context())
			leaves, answers = append(leaves, leave), append(answers, b.ask(ctx, user, 2))
		}
		leaves[1]()
		if _, err := answers[1](); status.Code(err) != codes.Canceled {
			t.Errorf("left: %v", err)
		}
		b.goOn <- struct{}{}
		b.batches(1, 6)
		leaves[0]()
		leaves[2]()
		b.goOn <- struct{}{}
		if got, err := answers[3](); err != nil || got != 3 || b.ended != 0 {
			t.Errorf("who stays: %v, %v; %d batches ended", got, err, b.ended)
		}
		for _, all := range [][]int64{{7}, {8, 9}} { // alone, and together
			busy := b.ask(t.Context(), 1, 1)
			before := b.ended
			ctx, leave := context.WithCancel(t.Context())
			for _, user := range all {
				b.ask(ctx, user, 1)
			}
			b.goOn <- struct{}{}
			if _, err := busy(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			leave()
			synctest.Wait()
			b.goOn <- struct{}{}
			synctest.Wait()
			if b.ended != before+1 {
				t.Errorf("%v have left, and their batch goes on", all)
			}
		}
		if _, err := first(); err != nil {
			t.Error(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		busy, alone := b.ask(t.Context(), 1, 1), b.ask(ctx, 2, 1)
		leave()
		if _, err := alone(); status.Code(err) != codes.Canceled || b.waiting.Len() != 0 || len(b.queues) != 0 {
			t.Errorf("the only one of a batch left: %v, %d batches wait", err, b.waiting.Len())
		}
		late := b.ask(t.Context(), 3, 1)
		go func() { b.goOn <- struct{}{} }()
		b.stop()
		for _, answer := range []func() (float32, error){late, b.ask(t.Context(), 4, 1)} {
			if _, err := answer(); err != nil && status.Code(err) != codes.Unavailable {
				t.Errorf("at the end: %v", err)
			}
		}
		if _, err := busy(); err != nil {
			t.Error(err)
		}
		if _, err := b.ask(t.Context(), 5, 1)(); status.Code(err) != codes.Unavailable {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A request of more rows than a batch may have is refused, or a batch by itself.
func TestRequestsLargerThanABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, large := range []bool{false, true} {
			b := newBench(t, Batching{MaxRows: 2, MaxEnqueued: 2, Threads: 1, Large: large})
			b.takes = time.Millisecond
			_, err := b.ask(t.Context(), 1, 3)()
			if large != (err == nil) || err != nil && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "Task size 3 is larger than maximum input batch size 2")) {
				t.Errorf("large %v: %v", large, err)
			}
			b.stop()
		}
	})
}

func TestParametersOfBatching(t *testing.T) {
	good := Batching{MaxRows: 1, MaxEnqueued: 1, Threads: 1}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for says, change := range map[string]func(*Batching){
		"max_batch_size is 0":        func(p *Batching) { p.MaxRows = 0 },
		"num_batch_threads is 0":     func(p *Batching) { p.Threads = 0 },
		"max_enqueued_batches is -1": func(p *Batching) { p.MaxEnqueued = -1 },
		"batch_timeout_micros is -1": func(p *Batching) { p.Timeout = -time.Microsecond },
		"at most 65536 and 1024":     func(p *Batching) { p.MaxRows = MaxBatch + 1 },
		"num_batch_threads 1025":     func(p *Batching) { p.Threads = 1025 },
	} {
		p := good
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

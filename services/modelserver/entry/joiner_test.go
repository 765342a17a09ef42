package entry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// asked is a joiner whose computations take until they are let go.
type asked struct {
	joiner
	t    *testing.T
	m    *Model
	goOn chan struct{}
	rows [][]int // of each computation, by job
	gone int     // computations whose callers had all left
}

// ask asks about so many rows of a user, where two callers may compute, and says later what became of it.
func (q *asked) ask(ctx context.Context, user int64, rows int) (answer func() (*job, error)) {
	q.t.Helper()
	sc := q.m.scratches.Get().(*scratch)
	movies := make([]int64, rows)
	if err := sc.load(q.m, Input{Tensors: map[string]*tfserving.TensorProto{"user": tfserving.NewInt64([]int64{user}), "movie": tfserving.NewInt64(movies)}}, 1<<10); err != nil {
		q.t.Fatal(err)
	}
	j, err, said := &job{ctx: ctx, scratch: sc, done: make(chan struct{})}, error(nil), make(chan struct{})
	go func() {
		defer close(said)
		err = q.answer(j, 2, func(ctx context.Context, jobs []*job) {
			var rows []int
			for _, j := range jobs {
				rows = append(rows, j.scratch.batch.Len())
				j.scores = [][]float32{{float32(signature(j.scratch.batch.IDs(0, 0)[0]))}}
			}
			q.mu.Lock()
			q.rows = append(q.rows, rows)
			q.mu.Unlock()
			<-q.goOn
			if ctx.Err() != nil {
				q.gone++
			}
		})
	}()
	synctest.Wait()
	return func() (*job, error) {
		<-said
		return j, err
	}
}

func (q *asked) computed(want ...[]int) {
	q.t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.EqualFunc(q.rows, want, slices.Equal) {
		q.t.Errorf("computed %v rows, want %v", q.rows, want)
	}
}

// Who finds a place computes at once; who does not joins the others that wait, in their order, up to as many
// rows as may be, and a request of more is alone.
func TestRequestsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &asked{t: t, m: newEntry(t), goOn: make(chan struct{})}
		var answers []func() (*job, error)
		for user, rows := range []int{1, 300, 100, 156, 1, 300, 2} {
			answers = append(answers, q.ask(t.Context(), int64(user), rows))
		}
		q.computed([]int{1}, []int{300})
		q.goOn <- struct{}{}
		q.computed([]int{1}, []int{300}, []int{100, 156})
		for range 4 {
			q.goOn <- struct{}{}
			synctest.Wait() // of two that may begin at once, nobody knows which is first
		}
		q.computed([]int{1}, []int{300}, []int{100, 156}, []int{1}, []int{300}, []int{2})
		q.goOn <- struct{}{}
		for user, answer := range answers {
			j, err := answer()
			if err != nil || j.scores[0][0] != float32(user) || j.joined != (user == 2 || user == 3) {
				t.Errorf("user %d: %v, %v, joined %v", user, j.scores, err, j.joined)
			}
		}
		if q.busy != 0 || len(q.waiting) != 0 {
			t.Errorf("idle: %d compute, %d wait", q.busy, len(q.waiting))
		}
	})
}

// A caller that leaves takes its request along, but not those of others whose turn it had.
func TestCallersOfAJoinerLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &asked{t: t, m: newEntry(t), goOn: make(chan struct{})}
		first, second := q.ask(t.Context(), 1, 1), q.ask(t.Context(), 2, 1)
		leaving, leave := context.WithCancel(t.Context())
		gone := q.ask(leaving, 3, 1)
		stays := q.ask(t.Context(), 4, 1)
		leave()
		if _, err := gone(); status.Code(err) != codes.Canceled {
			t.Errorf("who left before its turn: %v", err)
		}
		leaving, leave = context.WithCancel(t.Context())
		taken := q.ask(leaving, 5, 1)
		q.goOn <- struct{}{}
		q.computed([]int{1}, []int{1}, []int{1, 1})
		leave()
		if _, err := taken(); status.Code(err) != codes.Canceled {
			t.Errorf("who left while another computed its request: %v", err)
		}
		q.goOn <- struct{}{}
		q.goOn <- struct{}{}
		for _, answer := range []func() (*job, error){first, second, stays} {
			if j, err := answer(); err != nil || j.scores == nil {
				t.Errorf("who stayed: %v, %v", j.scores, err)
			}
		}
		if q.busy != 0 || len(q.waiting) != 0 || q.gone != 0 {
			t.Errorf("idle: %d compute, %d wait, %d were stopped", q.busy, len(q.waiting), q.gone)
		}
	})
}

// overdue is a context whose deadline has passed, though its timer has not fired yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now(), true }

// What its caller's deadline has passed for is not computed when its turn comes.
func TestAJoinerDropsWhatIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &asked{t: t, m: newEntry(t), goOn: make(chan struct{})}
		first, second := q.ask(t.Context(), 1, 1), q.ask(t.Context(), 2, 1)
		ctx, timer := context.WithCancel(t.Context())
		late, stays := q.ask(overdue{ctx}, 3, 1), q.ask(t.Context(), 4, 1)
		for range 2 {
			q.goOn <- struct{}{}
		}
		q.computed([]int{1}, []int{1}, []int{1})
		timer()
		if _, err := late(); status.Code(err) != codes.Canceled {
			t.Errorf("overdue: %v", err)
		}
		q.goOn <- struct{}{}
		for user, answer := range map[int]func() (*job, error){1: first, 2: second, 4: stays} {
			if j, err := answer(); err != nil || j.scores[0][0] != float32(user) {
				t.Errorf("user %d: %v, %v", user, j.scores, err)
			}
		}
	})
}

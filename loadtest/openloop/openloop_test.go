package openloop

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/loadtest/report"
)

// play runs a load for a while of the bubble's time.
func play(t *testing.T, cfg Config, lasts time.Duration, call func(n int) Call) (all []Answer, res Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	rec := NewRecorder(time.Now(), nil)
	err := Run(ctx, cfg, call, func(a Answer) {
		all = append(all, a)
		rec.Observe(a)
	})
	if err != nil {
		t.Fatal(err)
	}
	if res, err = rec.Result(); err != nil {
		t.Fatal(err)
	}
	return all, res
}

// sleeps is a call that takes d of the bubble's time.
func sleeps(d time.Duration) Call {
	return func(context.Context) error { time.Sleep(d); return nil }
}

func TestEvenArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, res := play(t, Config{Rate: 100}, time.Second-time.Millisecond, func(int) Call { return sleeps(10 * time.Millisecond) })
		if len(all) != 100 || res.Answered != 100 || len(res.Errors) != 0 {
			t.Fatalf("%d calls, %+v", len(all), res)
		}
		for i, a := range all {
			if a.Took != 10*time.Millisecond || a.Late != 0 || a.Due != all[0].Due.Add(time.Duration(i)*10*time.Millisecond) {
				t.Errorf("call %d: %+v", i, a)
			}
		}
		if math.Abs(float64(res.P50)-10) > 0.01 || math.Abs(float64(res.Max)-10) > 0.01 || !res.Valid || math.Abs(float64(res.Offered)-100) > 0.5 {
			t.Errorf("%+v", res)
		}
	})
}

// lateEnd is a context whose timer the machine was late with.
type lateEnd struct {
	context.Context
	deadline time.Time
}

func (c lateEnd) Deadline() (time.Time, bool) { return c.deadline, true }

// A load of a second at a rate makes as many calls as fall due in it, however late its end is noticed.
func TestNothingIsDueBehindTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noticed, cancel := context.WithTimeout(t.Context(), time.Second+55*time.Millisecond)
		defer cancel()
		n := 0
		end := time.Now().Add(time.Second)
		err := Run(lateEnd{noticed, end}, Config{Rate: 100}, func(int) Call { return sleeps(0) }, func(Answer) { n++ })
		if err != nil || n != 100 {
			t.Errorf("%d calls at 100 a second in one second, %v", n, err)
		}
		if early := time.Until(end); early > 0 {
			t.Errorf("it ended %v before its end", early)
		}
	})
}

func TestPoissonArrivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, _ := play(t, Config{Rate: 1000, Poisson: true, Seed: 7}, 10*time.Second, func(int) Call { return sleeps(0) })
		var sum, squares float64
		for i := 1; i < len(all); i++ {
			gap := all[i].Due.Sub(all[i-1].Due).Seconds()
			sum, squares = sum+gap, squares+gap*gap
		}
		n := float64(len(all) - 1)
		mean := sum / n
		deviation := math.Sqrt(squares/n - mean*mean)
		if math.Abs(n-10_000) > 500 || math.Abs(mean-0.001) > 5e-5 || math.Abs(deviation/mean-1) > 0.05 {
			t.Errorf("%v calls, mean interval %v s, deviation %v", n, mean, deviation)
		}
	})
}

// A server that answers one call at a time and stalls for a second: the calls that fell due
// meanwhile count from when they were due, and those without a slot are shed.
func TestNoStallIsHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stall := time.Now().Add(time.Second)
		answer := func(int) Call {
			return func(ctx context.Context) error {
				select {
				case <-time.After(max(time.Until(stall), time.Millisecond)):
					return nil
				case <-ctx.Done():
					return status.FromContextError(ctx.Err()).Err()
				}
			}
		}
		_, res := play(t, Config{Rate: 100, MaxInFlight: 80, Timeout: 950 * time.Millisecond}, 2*time.Second-time.Millisecond, answer)
		// 80 slots are taken at once; the first calls time out before the stall is over.
		shed, late := res.Errors[Shed], res.Errors["DeadlineExceeded"]
		if res.Calls != 200 || shed < 14 || shed > 16 || late < 5 || late > 6 || res.Answered != 200-shed-late {
			t.Errorf("%d calls, %d answered, errors %v", res.Calls, res.Answered, res.Errors)
		}
		if res.At(90) < 500 || res.Max < 900 {
			t.Errorf("p90 %v ms, max %v ms: what was due during the stall is left out", res.At(90), res.Max)
		}
	})
}

func TestLatenessMakesARunInvalid(t *testing.T) {
	r := NewRecorder(time.Now(), nil)
	for range 10 {
		r.Observe(Answer{Due: time.Now(), Late: 200 * time.Microsecond, Took: time.Millisecond})
	}
	if res, _ := r.Result(); res.Valid || !strings.Contains(res.Why, "late by 0.200 ms") {
		t.Errorf("%+v", res)
	}
	r = NewRecorder(time.Now(), nil)
	r.Observe(Answer{Due: time.Now(), Code: "Unavailable"})
	if res, _ := r.Result(); res.Valid || res.P50.Known() || res.Errors["Unavailable"] != 1 {
		t.Errorf("%+v", res)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if err := Run(t.Context(), Config{Rate: rate}, nil, nil); err == nil {
			t.Errorf("rate %v passes", rate)
		}
	}
}

// Logs of several generators merge into what one would have seen.
func TestLogsMerge(t *testing.T) {
	dir := t.TempDir()
	both := NewHistogram()
	var paths []string
	for g := range 2 {
		path := filepath.Join(dir, fmt.Sprintf("%d.hlog", g))
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Unix(1_700_000_000, 0)
		l, err := NewLog(f, start, "a test")
		if err != nil {
			t.Fatal(err)
		}
		rec := NewRecorder(start, l.Second)
		for i := range 5000 {
			took := time.Duration(1+i%97*(g+1)) * 100 * time.Microsecond
			rec.Observe(Answer{Due: start.Add(time.Duration(i) * time.Millisecond), Took: took})
			Count(both, took)
		}
		if _, err := rec.Result(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	got, err := ReadLogs(paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 100} {
		if Ms(got, p) != Ms(both, p) {
			t.Errorf("p%v is %v, want %v", p, Ms(got, p), Ms(both, p))
		}
	}
	if got.TotalCount() != 10_000 {
		t.Errorf("%d calls", got.TotalCount())
	}
	if raw, err := os.ReadFile(paths[0]); err != nil || strings.Count(string(raw), "\n") < 8 {
		t.Errorf("one line each second: %v\n%s", err, raw)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, filepath.Join(dir, "absent")} {
		if _, err := ReadLogs([]string{path}); err == nil {
			t.Errorf("%s passes", path)
		}
	}
}

func TestGoals(t *testing.T) {
	h := NewHistogram()
	for i := range 1000 {
		Count(h, time.Duration(i+1)*10*time.Microsecond) // 0.01 to 10 ms
	}
	res := Of(h)
	res.Calls, res.Achieved, res.LateP99 = 1010, 400, 0.02
	for text, ok := range map[string]bool{
		"p99<10ms": true, "p99<9ms": false, "p50<=5.01ms": true, "p50 < 4ms": false, "mean<6ms": true, "max>1ms": true, "max<=9ms": false, "late<1ms": true,
		"rate>400": false, "rate>=400": true, "errors<1%": true, "errors<0.5": false, "p99.9<9ms": false, "": true,
	} {
		goals, err := ParseGoals(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		missed := ""
		for _, g := range goals {
			missed += g.Missed(res)
		}
		if (missed == "") != ok || text != "" && len(goals) != 1 {
			t.Errorf("%q: %q, want it %v", text, missed, ok)
		}
	}
	if goals, err := ParseGoals("p99<2ms, errors<1%,"); err != nil || len(goals) != 2 {
		t.Errorf("%d goals, %v", len(goals), err)
	}
	for _, text := range []string{"p99", "p99=2ms", "p99<2", "p101<1ms", "q<1", "rate>fast", "p99<2ms;x"} {
		if _, err := ParseGoals(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	goals, _ := ParseGoals("p99<2ms")
	if why := goals[0].Missed(Of(NewHistogram())); !strings.Contains(why, "nothing was answered") {
		t.Error(why)
	}
	if Of(NewHistogram()).P50.Known() || report.Number(report.Unknown()) != "–" {
		t.Error("nothing has figures")
	}
}

package state

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/kernels/table"
)

// Who waits for a later generation goes on once the shard answers in one, and not in the one that it
// leaves, nor while it does not answer.
func TestWaitingForALaterGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standing(t, Config{})
		s.Resume(1, 2)
		beyond := func(generation uint64) <-chan shardcmd.State {
			there := make(chan shardcmd.State, 1)
			go func() {
				if st, err := s.Beyond(t.Context(), generation); err == nil {
					there <- st
				}
			}()
			synctest.Wait()
			return there
		}
		if there := beyond(1); len(there) != 1 || (<-there).Generation != 2 {
			t.Error("in a later generation it is waited for")
		}
		later := beyond(2)
		s.Suspend(rowwire.Errorf(rowwire.Unavailable, "restored"))
		away := beyond(1)
		if synctest.Wait(); len(later) != 0 || len(away) != 0 {
			t.Error("somebody goes on in the generation that is left, or while the shard does not answer")
		}
		s.Resume(2, 3)
		if synctest.Wait(); len(later) != 1 || len(away) != 1 {
			t.Error("nobody goes on in the later generation")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Beyond(ctx, 3); err == nil {
			t.Error("a generation that did not come was waited for")
		}
	})
}

// A deterministic shard is read at the turn asked for: what it held before is gone, what comes later is
// waited for. Any other is read as it is.
func TestReadsAtTheirTurn(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, inTurns := range []bool{true, false} {
		s := standing(t, Config{Deterministic: inTurns})
		s.turn, s.generation = 5, 2
		for _, tc := range []struct {
			turn, generation uint64
			code             rowwire.Code
		}{{5, 2, 0}, {4, 2, rowwire.Overlap}, {6, 2, rowwire.Unavailable}, {5, 1, rowwire.WrongGeneration}, {5, 3, rowwire.WrongGeneration}} {
			want := tc.code
			if !inTurns {
				want = 0
			}
			err := s.Dense(gone, &rowwire.DenseRequest{Job: job, Turn: tc.turn, Generation: tc.generation}, new(rowwire.DenseResponse))
			if code := rowwire.CodeOf(err); code != want {
				t.Errorf("deterministic %v: variables of turn %d of generation %d: %v, want %v", inTurns, tc.turn, tc.generation, err, want)
			}
			res := new(rowwire.LookupResponse)
			err = s.Lookup(gone, &rowwire.LookupRequest{Model: job, Turn: tc.turn, Generation: tc.generation, Tables: []rowwire.TableIDs{{Table: "user", IDs: []int64{1}}}}, res)
			if code := rowwire.CodeOf(err); code != want {
				t.Errorf("deterministic %v: rows of turn %d of generation %d: %v, want %v", inTurns, tc.turn, tc.generation, err, want)
			}
		}
		s.Suspend(rowwire.Errorf(rowwire.NotFound, "stopped"))
		if err := s.Dense(t.Context(), &rowwire.DenseRequest{Job: job, Turn: 5, Generation: 2}, new(rowwire.DenseResponse)); rowwire.CodeOf(err) != rowwire.NotFound {
			t.Errorf("of a shard that does not answer: %v", err)
		}
	}
}

// Who names no variable gets all that the shard has; who names some gets those, in that order.
func TestVariablesByName(t *testing.T) {
	s := standing(t, Config{})
	if len(s.bandIDs) < 2 {
		t.Fatalf("the model has %d variables", len(s.bandIDs))
	}
	last := s.bandIDs[len(s.bandIDs)-1].name
	for _, tc := range []struct {
		names []string
		want  int
		code  rowwire.Code
	}{{nil, len(s.bandIDs), 0}, {[]string{last}, 1, 0}, {[]string{last, s.bandIDs[0].name}, 2, 0}, {[]string{"x"}, 0, rowwire.NotFound}} {
		var res rowwire.DenseResponse
		err := s.Dense(t.Context(), &rowwire.DenseRequest{Job: job, Names: tc.names}, &res)
		if rowwire.CodeOf(err) != tc.code || err == nil && len(res.Tensors) != tc.want {
			t.Errorf("%q: %+v, %v", tc.names, res, err)
			continue
		}
		for i, name := range tc.names {
			if err == nil && res.Tensors[i].Name != name {
				t.Errorf("%q: variable %d is %q", tc.names, i, res.Tensors[i].Name)
			}
		}
	}
}

// A page of a scan goes on behind the row named, has slots where they are asked for, and says whether
// more rows follow.
func TestAScanGoesOn(t *testing.T) {
	s := standing(t, Config{})
	ids := []int64{1, 2, 3}
	if err := s.tables["user"].Assign(ids, []float32{1, 1, 2, 2, 3, 3}, 9, 0); err != nil {
		t.Fatal(err)
	}
	scan := func(r rowwire.ScanRequest) (*rowwire.ScanResponse, error) {
		r.Model = job
		return s.Scan(&r)
	}
	var got []int64
	after := int64(table.NoID)
	for range ids {
		res, err := scan(rowwire.ScanRequest{Table: "user", After: after, Limit: 1})
		if err != nil || len(res.IDs) != 1 || len(res.Values) != 2 || len(res.Slots) != 0 || res.UnixSec[0] != 9 {
			t.Fatalf("%+v, %v", res, err)
		}
		got, after = append(got, res.IDs...), res.IDs[0]
		if res.More != (len(got) < len(ids)) {
			t.Errorf("behind row %d more follow: %v", after, res.More)
		}
	}
	if _, err := scan(rowwire.ScanRequest{Table: "x"}); rowwire.CodeOf(err) != rowwire.NotFound {
		t.Errorf("an unknown table: %v", err)
	}
	s.Suspend(rowwire.Errorf(rowwire.Gap, "stopped"))
	if _, err := scan(rowwire.ScanRequest{Table: "user"}); rowwire.CodeOf(err) != rowwire.Gap {
		t.Errorf("of a shard that does not answer: %v", err)
	}
	for what, err := range map[string]error{
		"where it stands": func() error { _, err := s.Now(); return err }(),
		"its offsets":     func() error { _, err := s.Offsets(job, 0); return err }(),
		"its hash":        func() error { _, err := s.Hash(); return err }(),
	} {
		if rowwire.CodeOf(err) != rowwire.Gap {
			t.Errorf("%s of a shard that does not answer: %v", what, err)
		}
	}
}

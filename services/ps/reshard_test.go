package ps

import (
	"maps"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

// rowsOf are all rows of a table on however many shards, each of which must be where its id
// says.
func (s *pupil) rowsOf(name string) map[int64][]float32 {
	s.t.Helper()
	all := map[int64][]float32{}
	for i, p := range s.shards {
		for id, row := range p.table(name) {
			if modelspec.ShardOf(id, len(s.shards)) != i {
				s.t.Errorf("shard %d of %d has row %d", i, len(s.shards), id)
			}
			all[id] = row
		}
	}
	return all
}

// A checkpoint of two shards is restored by three, and by one: rows go by their ids, bands by
// name and place, optimizer slots along with them, so that what is learnt next is the same.
func TestRestoreIntoAnotherNumberOfShards(t *testing.T) {
	for _, shards := range []int{1, 3} {
		w := newWorld(t)
		w.declareDeep()
		s := w.pupil(2)
		s.learn()
		s.learn()
		w.save(w.checkpoint(2, 1, 0))
		s.learn()
		dense, users, movies := s.fetch(), s.rowsOf("user"), s.rowsOf("movie")
		for _, p := range s.shards {
			p.settled()
			if err := p.stop(); err != nil {
				t.Fatal(err)
			}
		}
		other := w.pupil(shards)
		other.step = 2
		st, err := other.shards[shards-1].Offsets(soon(t), &rowwire.OffsetsRequest{Job: job, Shard: uint32(shards - 1)})
		if err != nil || st.Step != 2 || st.Next[0] != 16 {
			t.Fatalf("%d shards begin at %+v, %v", shards, st, err)
		}
		other.learn() // what was lost, once more
		if !slices.EqualFunc(other.fetch(), dense, slices.Equal[[]float32]) {
			t.Errorf("%d shards learn other variables than the two before", shards)
		}
		for name, want := range map[string]map[int64][]float32{"user": users, "movie": movies} {
			if got := other.rowsOf(name); !maps.EqualFunc(got, want, slices.Equal[[]float32]) {
				t.Errorf("%d shards have %d rows of table %s that differ from the %d before", shards, len(got), name, len(want))
			}
		}
		var m *mirror
		for _, p := range other.shards {
			m = p.settled()
		}
		for name, want := range map[string]map[int64][]float32{"user": users, "movie": movies} {
			if !maps.EqualFunc(m.rows[name], want, slices.Equal[[]float32]) {
				t.Errorf("%d shards: a follower has %d rows of table %s, want %d", shards, len(m.rows[name]), name, len(want))
			}
		}
		for _, b := range modelspec.Bands(other.e.Variables()) {
			if !slices.Equal(m.dense[band{b.Name, b.At}], dense[b.Variable][b.At:b.At+b.Size]) {
				t.Errorf("%d shards: a follower has other numbers of %s at %d", shards, b.Name, b.At)
			}
		}
	}
}

// Rows that only a lost timeline made are taken back by the shard that they fall to now.
func TestReshardingTakesLostRowsBack(t *testing.T) {
	w := newWorld(t)
	start := func(shards int) (all []*proc) {
		for i := range shards {
			cfg := w.config()
			cfg.Shard, cfg.Shards = i, shards
			all = append(all, w.start(cfg))
		}
		return all
	}
	two := start(2)
	for i, p := range two {
		p.teach(pstest.Teach(i, 0, 0, 10, 1, int64(i), int64(i+2)))
	}
	w.save(w.checkpoint(2, 1, 0))
	for i, p := range two {
		p.teach(pstest.Teach(i, 0, 10, 20, 1, int64(i), int64(i+10)))
		p.settled()
		if err := p.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if m := w.follow(); len(m.rows["user"]) != 6 || m.rows["user"][0][0] != -2 {
		t.Fatalf("before: %v", m.rows["user"])
	}
	var m *mirror
	for _, p := range start(3) {
		m = p.settled()
	}
	want := map[int64][]float32{0: {-1, -1}, 1: {-1, -1}, 2: {-1, -1}, 3: {-1, -1}}
	if !maps.EqualFunc(m.rows["user"], want, slices.Equal[[]float32]) {
		t.Errorf("a follower has %v, want %v", m.rows["user"], want)
	}
}

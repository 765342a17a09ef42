package input

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/input/itempool"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/runtime"
)

// chosen is a model whose positives have negatives of the items of the last records.
func chosen(n *model.SampleRule_Negatives) *model.ModelSpec {
	spec := modelspec.MovieRanking()
	n.Item = []string{"movie"}
	spec.SampleRules = []*model.SampleRule{{
		Name: "seen", Where: []*model.Condition{{Label: "score", AtLeast: proto.Float64(0.5)}},
		Action: &model.SampleRule_Negatives_{Negatives: n},
	}}
	return modelspec.Normalize(spec)
}

// sampled is what became of a record: its samples' movies and labels.
type sampled struct {
	Movies []int64
	Labels []float32
}

// drawnOf reads records of users who like movies, from an offset on, into batches of their own.
func drawnOf(t *testing.T, spec *model.ModelSpec, pool *itempool.Pool, from, to int64) map[int64]sampled {
	t.Helper()
	e, err := runtime.New(spec, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	d, b := New(spec, Options{}), e.NewBatch()
	d.Draw(pool)
	all := map[int64]sampled{}
	for offset := from; offset < to; offset++ {
		b.Reset()
		rating := 5 - offset%4 // one in two is liked
		if err := d.Into(b, fmt.Appendf(nil, `{"userId":%d,"movieId":%d,"rating":%d}`, offset, offset*7919%97, rating), Position{3, offset}); err != nil {
			t.Fatal(err)
		}
		s := sampled{Labels: slices.Clone(b.Labels(0))}
		for i := range b.Len() {
			s.Movies = append(s.Movies, b.IDs(1, i)[0]&modelspec.MaxID)
			if user := b.IDs(0, i)[0] & modelspec.MaxID; user != offset {
				t.Fatalf("offset %d: user %d", offset, user)
			}
		}
		all[offset] = s
	}
	return all
}

// A positive comes behind copies with other liked movies of the last records and label 0; nothing else changes.
func TestNegatives(t *testing.T) {
	spec := chosen(&model.SampleRule_Negatives{Count: 3, Records: proto.Uint64(40), Start: proto.Uint32(4)})
	drawn := drawnOf(t, spec, itempool.New(), 0, 400)
	none, several := 0, map[int64]int{}
	for offset, s := range drawn {
		own, last := offset*7919%97, len(s.Movies)-1
		liked := s.Labels[last] == 1
		switch {
		case s.Movies[last] != own || !liked && last != 0:
			t.Fatalf("offset %d: %+v", offset, s)
		case !liked:
			continue
		case last == 0:
			none++
			continue
		case last != 3:
			t.Errorf("offset %d: %+v", offset, s)
		}
		for i, movie := range s.Movies[:last] {
			within := false
			for o := max(offset-40, 0); o < offset; o++ {
				within = within || o*7919%97 == movie && len(drawn[o].Labels) > 0 && drawn[o].Labels[len(drawn[o].Labels)-1] == 1
			}
			if !within || movie == own || s.Labels[i] != 0 {
				t.Errorf("offset %d has the negative %d, label %g", offset, movie, s.Labels[i])
			}
			several[movie]++
		}
	}
	if none == 0 || none > 5 || len(several) < 80 {
		t.Errorf("%d positives without negatives, which are %d movies", none, len(several))
	}
}

// Whatever else a pool has seen, and wherever reading began within reach, a record draws the same.
func TestNegativesAreDrawnAsOfTheirOffset(t *testing.T) {
	spec := chosen(&model.SampleRule_Negatives{Count: 2, Records: proto.Uint64(50), Start: proto.Uint32(10), Items: proto.Uint32(20)})
	want := drawnOf(t, spec, itempool.New(), 0, 300)
	same := func(what string, got map[int64]sampled, from int64) {
		t.Helper()
		for offset := from; offset < 300; offset++ {
			if !slices.Equal(got[offset].Movies, want[offset].Movies) {
				t.Fatalf("%s: offset %d draws %v, want %v", what, offset, got[offset].Movies, want[offset].Movies)
			}
		}
	}
	for _, from := range []int64{51, 100, 199} { // 50 before it are read, and not learnt
		same("resumed", drawnOf(t, spec, itempool.New(), from-50, 300), from)
	}
	ahead := itempool.New()
	drawnOf(t, spec, ahead, 0, 300)
	same("again, behind what was read", drawnOf(t, spec, ahead, 0, 300), 0)
	trimmed := itempool.New()
	drawnOf(t, spec, trimmed, 0, 200)
	trimmed.Trim(200)
	same("trimmed", drawnOf(t, spec, trimmed, 200, 300), 200)
	other := chosen(&model.SampleRule_Negatives{Count: 2, Records: proto.Uint64(50), Start: proto.Uint32(10), Items: proto.Uint32(20)})
	other.Seed++
	differ := 0
	for offset, s := range drawnOf(t, other, itempool.New(), 0, 300) {
		if !slices.Equal(s.Movies, want[offset].Movies) {
			differ++
		}
	}
	if differ < 100 {
		t.Errorf("with another seed %d of 150 positives draw others", differ)
	}
}

// A record that cannot be learnt leaves nothing in the pool.
func TestARefusedRecordIsNoItem(t *testing.T) {
	spec := chosen(&model.SampleRule_Negatives{Count: 1, Start: proto.Uint32(0)})
	e, err := runtime.New(spec, 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	d, b, pool := New(spec, Options{}), e.NewBatch(), itempool.New()
	d.Draw(pool)
	for offset, record := range []string{`{"userId":1,"movieId":-2,"rating":5}`, `{"userId":1,"movieId":3,"rating":5}`} {
		if err := d.Into(b, []byte(record), Position{0, int64(offset)}); (err != nil) != (offset == 0) {
			t.Fatal(offset, err)
		}
	}
	for key := range uint64(20) {
		if item, ok := pool.Draw(0, 2, 0, key*0x9e3779b97f4a7c15); b.Len() != 1 || !ok || item.Key&modelspec.MaxID != 3 {
			t.Errorf("of %d samples %+v is drawn, %v", b.Len(), item, ok)
		}
	}
}

package trainer

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"
	"time"

	tf "github.com/wamuir/graft/tensorflow/core/example/example_protos_go_proto"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

type rating struct{ user, movie, stars int64 }

// A topic of Examples is learnt to the same bits as one of JSON: every shard is sent the same
// ids and gradients, batch by batch, and the same records are parked.
func TestExamplesAreLearntAsJSONIs(t *testing.T) {
	const records = 200
	var ratings []rating
	for i := range int64(records) {
		r := rating{i % 37, i * 7 % 53, i % 6}
		if i%40 == 11 {
			r.movie = -1
		}
		ratings = append(ratings, r)
	}
	json, jsonParked := learnAs(t, "json", ratings, func(r rating) []byte {
		return fmt.Appendf(nil, `{"userId":%d,"movieId":"%d","rating":%d}`, r.user, r.movie, r.stars)
	})
	example, exampleParked := learnAs(t, "example", ratings, func(r rating) []byte {
		b, err := proto.Marshal(&tf.Example{Features: &tf.Features{Feature: map[string]*tf.Feature{
			"userId":  {Kind: &tf.Feature_Int64List{Int64List: &tf.Int64List{Value: []int64{r.user}}}},
			"movieId": {Kind: &tf.Feature_BytesList{BytesList: &tf.BytesList{Value: [][]byte{fmt.Append(nil, r.movie)}}}},
			"rating":  {Kind: &tf.Feature_FloatList{FloatList: &tf.FloatList{Value: []float32{float32(r.stars)}}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
	if !slices.Equal(json, example) || slices.Contains(json, 0) {
		t.Errorf("the shards were sent %x of JSON, %x of Examples", json, example)
	}
	if !slices.Equal(jsonParked, exampleParked) || len(jsonParked) != 5 {
		t.Errorf("parked of JSON: %q, of Examples: %q", jsonParked, exampleParked)
	}
}

// learnAs learns the ratings as records of a format, and returns a sum of what each shard was sent, and
// why records were parked.
func learnAs(t *testing.T, format string, ratings []rating, write func(rating) []byte) (sent []uint64, parked []string) {
	t.Helper()
	written := time.Unix(1700000000, 0)
	w := newWorld(t, 1, 2)
	sums := w.sums()
	var recs []kafka.Record
	for i, r := range ratings {
		fids := []int64{modelspec.FID(1, r.user), modelspec.FID(2, r.movie)}
		if r.movie < 0 {
			fids = nil
			w.broken[fmt.Sprintf("kafka:ratings/0 %d", i)] = true
		}
		w.fids[0] = append(w.fids[0], fids)
		recs = append(recs, kafka.Record{Topic: "ratings", Value: write(r), Time: written})
	}
	w.ends[0] = int64(len(ratings))
	if _, err := w.writer.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
	cfg := w.config("a", 0)
	cfg.Format, cfg.Deterministic, cfg.StopAtEnd, cfg.LabelRange = format, true, true, []float64{0, 5}
	w.run(cfg).wait(t)
	w.checkLetters()
	for _, s := range w.shards {
		s.checkBooks(w.ends)
	}
	letters, err := w.b.DeadLetters().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		parked = append(parked, l.Reason)
	}
	return sums, parked
}

// sums has every shard sum up the applies that it takes.
func (w *world) sums() []uint64 {
	sums := make([]uint64, len(w.shards))
	for i, s := range w.shards {
		sum := fnv.New64a()
		s.inOrder = true
		s.took = func(r *rowwire.ApplyRequest) {
			fmt.Fprintln(sum, r.From, r.To, r.RecordUnix)
			for _, table := range r.Tables {
				fmt.Fprintln(sum, table.Table, table.IDs)
				for _, g := range table.Grads {
					fmt.Fprint(sum, math.Float32bits(g), " ")
				}
			}
			for _, v := range r.Dense {
				fmt.Fprintln(sum, v.Name)
				for _, g := range v.Values {
					fmt.Fprint(sum, math.Float32bits(g), " ")
				}
			}
			sums[i] = sum.Sum64()
		}
	}
	return sums
}

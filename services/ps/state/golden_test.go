package state

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/delta"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/internal/wire/shardcmd"
	"github.com/monolith-go/monolith/services/ps/pstest"
	"github.com/monolith-go/monolith/services/ps/publish"
)

// story does with a shard's state whatever touches rows, in an order drawn by seed, and
// hashes the deltas that it publishes meanwhile.
type story struct {
	t    *testing.T
	s    *Shard
	r    *rand.Rand
	h    hash.Hash
	next int64
	time int64
	lost *delta.Delta // what a lost timeline may have published
	seen int          // rows published
	gone int          // rows said to be removed
}

func (p *story) ids() []int64 {
	ids := make([]int64, 1+p.r.IntN(60))
	for i := range ids {
		if ids[i] = p.r.Int64N(400) - 20; p.r.IntN(3) > 0 {
			ids[i] += 1 << 48
		}
	}
	return ids
}

func (p *story) numbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(p.r.NormFloat64())
	}
	return v
}

func (p *story) step() {
	must := func(err error) {
		p.t.Helper()
		if err != nil {
			p.t.Fatal(err)
		}
	}
	switch p.r.IntN(9) {
	case 0, 1, 2, 3:
		p.time += p.r.Int64N(50_000)
		r := &rowwire.ApplyRequest{Job: job, Epoch: 1, From: p.next, To: p.next + 1, RecordUnix: p.time}
		p.next++
		for _, name := range []string{"user", "movie"} {
			if ids := p.ids(); p.r.IntN(4) > 0 {
				r.Tables = append(r.Tables, rowwire.TableGrads{Table: name, IDs: ids, Grads: p.numbers(len(ids) * p.s.dims[name])})
			}
		}
		_, err := p.s.Apply(p.t.Context(), r, "")
		must(err)
	case 4:
		ids := p.ids()
		slices.Sort(ids)
		ids = slices.Compact(ids)
		_, err := p.s.Assign(shardcmd.AssignRequest{RequestID: string(rune('a' + p.next)), Table: "user", IDs: ids, Values: p.numbers(len(ids) * p.s.dims["user"])}, time.Unix(p.time, 0))
		must(err)
	case 5:
		p.s.mu.Lock()
		for name := range p.s.expiry {
			p.s.expire(name, p.s.expiry[name].clock, math.MaxInt)
		}
		p.s.mu.Unlock()
	case 6:
		if p.lost != nil {
			p.s.retouch(p.lost)
		}
	case 7:
		if p.r.IntN(8) == 0 {
			p.s.TouchAll()
		} else if p.r.IntN(8) == 0 {
			p.s.mu.RLock()
			all := p.s.copyAll()
			p.s.mu.RUnlock()
			all.Manifest.Format = 3
			must(p.s.Load(all))
			p.s.Resume(1, 0)
			p.next = p.s.offsets()[0]
		}
	case 8:
		p.publish()
	}
}

func (p *story) publish() {
	d := p.s.CollectDirty(func(int) bool { return p.r.IntN(2) == 0 })
	if d == nil {
		p.h.Write([]byte("nothing"))
		return
	}
	rows, variables := publish.Writer{Job: job, Shards: 1}.Deltas(d)
	for _, x := range append(rows, variables...) {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(x)
		if err != nil {
			p.t.Fatal(err)
		}
		p.h.Write(b)
		for _, r := range x.GetRows() {
			p.seen, p.gone = p.seen+len(r.GetIds()), p.gone+len(r.GetRemoved())
		}
		if len(x.GetRows()) > 0 {
			p.lost = x
		}
	}
}

// Deltas have the bytes that they had when touched ids were kept in a map.
func TestDeltasAreTheBytesTheyWere(t *testing.T) {
	for want, change := range map[string]func(m *model.ModelSpec){
		"plain": func(*model.ModelSpec) {},
		"filtered, expiring": func(m *model.ModelSpec) {
			m.Tables[0].Admission = &model.Admission{
				Kind:      &model.Admission_SlidingCounter{SlidingCounter: &model.SlidingCounter{Capacity: proto.Uint64(100_000)}},
				Threshold: 3,
			}
			m.Tables[0].Expire = &model.Expire{Days: 1}
			m.Tables[1].Expire = &model.Expire{Days: 2}
		},
		"compressed": func(m *model.ModelSpec) {
			m.Tables[0].Compressor, m.Tables[1].Compressor = pstest.Bits(), pstest.Halves()
			m.Tables[0].Expire = &model.Expire{Days: 1}
		},
	} {
		spec := pstest.Learning()
		change(spec)
		f, err := newSchema(Config{Job: job, Shards: 1, ClockStep: 24 * time.Hour}, spec)
		if err != nil {
			t.Fatal(err)
		}
		p := &story{t: t, s: newShard(f), r: rand.New(rand.NewPCG(8, 9)), h: sha256.New(), time: 1_700_000_000}
		if err := p.s.Load(nil); err != nil {
			t.Fatal(err)
		}
		p.s.Resume(1, 0)
		for range 1500 {
			p.step()
		}
		p.publish()
		if p.seen < 1000 || p.s.expiry["user"] != nil && p.gone < 100 {
			t.Errorf("%s: only %d rows published and %d removed", want, p.seen, p.gone)
		}
		if got := hex.EncodeToString(p.h.Sum(nil)); got != goldenDeltas[want] {
			t.Errorf("%s: the deltas' hash is %s", want, got)
		}
	}
}

// goldenDeltas was written by the code that kept maps, and by the one that first sent signs as bits.
var goldenDeltas = map[string]string{
	"plain":              "c75e5b8debee9e3db7ee6b4b20f11d87415e0162ab35f2ced44252cfde2d864b",
	"filtered, expiring": "eed09ae0fa8e56d1e20fdf46e56570a5ff99dc16b755c33125b49788ba4f7ab5",
	"compressed":         "408bd49562f35d17729a271b7cf5d1f73f4ace06f4e677bab3a598f0d16d3c61",
}

package syncbytes

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/gen"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Figures follow from the formats: a row of 64 numbers is its id's 8 bytes and 256, 128, 64 or 8, each interval or
// each fourth.
func TestBytesFollowFromFormats(t *testing.T) {
	var cases []BytesCase
	for _, s := range append(slices.Clone(formats), Setting{Name: "bytes", Compressor: inBytes(0.5), Every: 4}, Setting{Name: "bits", Compressor: inBits(0.1), Within: proto.Float32(0)}) {
		cases = append(cases, BytesCase{IDs: 500, Dim: 64, Intervals: 4, Age: 100, Setting: s})
	}
	cases = append(cases, BytesCase{IDs: 500, Dim: 64, Intervals: 4, Zipf: true, Setting: formats[0]})
	got := figures(t, cases, nil, "fewer bytes")
	for i, want := range []float64{256. / 264, 256. / 136, 256. / 72, 256. / 16, 4 * 256. / 72, 256. / 16, 256. / 264} {
		if i == 5 { // rows whose signs stay do not go
			if got[i] < 1.05*want {
				t.Errorf("%v: %.2f times fewer bytes", cases[i].Setting, got[i])
			}
		} else if got[i] < 0.95*want || got[i] > want {
			t.Errorf("%v: %.2f times fewer bytes, want at most %.2f and no less than 0.95 of it", cases[i].Setting, got[i], want)
		}
	}
	if raw := figures(t, cases[6:], nil, "bytes"); raw[0] >= 4*500*256e-6 {
		t.Errorf("Zipf's law touches %.3f MB in 4 intervals", raw[0])
	}
	if _, err := run(t, []BytesCase{{IDs: 10, Dim: 8, Intervals: 3, Setting: goals[1]}}, nil); err == nil {
		t.Error("rows that wait at the end are not missed")
	}
}

// A follower that gets halves in each interval serves what one of whole rows does, to a few in a million; one that gets none for
// long serves worse.
func TestAUC(t *testing.T) {
	c := AUCCase{Name: "small", Audience: gen.SimulatorConfig{Count: 3000}, Dim: 8, Each: 20, Batch: 10, Seeds: 2,
		Settings: []Setting{formats[0], formats[1], {Name: "halves", Compressor: inHalves(), Every: 1000}}}
	got := figures(t, nil, []AUCCase{c}, "AUC")
	if len(got) != 3 || got[0] < 0.55 || got[1] < got[0]-1e-4 || got[1] > got[0]+1e-4 || got[2] > got[0]-0.02 {
		t.Errorf("AUC %v, want that of whole rows twice and then less", got)
	}
}

// figures are the values of that name.
func figures(t *testing.T, tables []BytesCase, models []AUCCase, name string) (values []float64) {
	t.Helper()
	results, err := run(t, tables, models)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if cut := len(r.Name) - len(name) - 1; r.Name[cut:] == " "+name && r.Name[cut-6:cut] != " fewer" {
			values = append(values, float64(r.Value))
		}
	}
	return values
}

func run(t *testing.T, tables []BytesCase, models []AUCCase) ([]bench.Result, error) {
	r := bench.Runner{}
	return r.Run(t.Context(), []bench.Benchmark{Bytes(tables, models)})
}

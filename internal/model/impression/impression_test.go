package impression_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/model/impression"
)

const golden = `{"requestId":"r-1","row":2,"model":"movie_ranking","version":7,"time_us":1700000000000001,` +
	`"inputs":{"movieId":10,"userId":1},"score":0.71,"rows":[{"table":"user","id":281474976710657,"shard":1,"replica":0,"syncSeq":42}],` +
	`"denseSeq":43,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","container":"c0"}`

func sample() *impression.Impression {
	return &impression.Impression{
		RequestID: "r-1", Row: 2, Model: "movie_ranking", Version: 7, TimeUS: 1700000000000001,
		Inputs: map[string]impression.IDs{"userId": {1}, "movieId": {10}}, Score: 0.71,
		Rows:        []impression.Row{{Table: "user", ID: 1<<48 | 1, Shard: 1, SyncSeq: 42}},
		DenseSeq:    43,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Container: "c0",
	}
}

func TestGolden(t *testing.T) {
	got, err := impression.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != golden {
		t.Fatalf("Encode:\n got %s\nwant %s", got, golden)
	}
	back, err := impression.Decode([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), back); diff != "" {
		t.Fatalf("Decode (-want +got):\n%s", diff)
	}
}

// An input of one id is the number it always was; lists come back as they were.
func TestLists(t *testing.T) {
	i := sample()
	i.Inputs = map[string]impression.IDs{"history": {3, 4}, "genres": {}, "user": {1}}
	i.Floats = map[string][]float32{"age": {0.5}}
	i.Scores = map[string]float32{"like": 0.25, "share": 0.75}
	i.More = map[string]int{"history": 44}
	b, err := impression.Encode(i)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"inputs":{"genres":[],"history":[3,4],"user":1},"floats":{"age":[0.5]}`; !strings.Contains(string(b), want) {
		t.Errorf("%s lacks %s", b, want)
	}
	back, err := impression.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(i, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	i.Scores["like"] = float32(math.NaN())
	if _, err := impression.Encode(i); err == nil {
		t.Error("a task's NaN is written")
	}
}

func TestEncodeRefusesWhatJSONCannotHold(t *testing.T) {
	for _, score := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		i := sample()
		i.Score = float32(score)
		if b, err := impression.Encode(i); err == nil {
			t.Errorf("score %v was written as %s", score, b)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	for name, data := range map[string]string{
		"empty":        ``,
		"cut short":    `{"requestId":"a"`,
		"two values":   `{"requestId":"a","model":"m"}{}`,
		"no request":   `{"model":"m"}`,
		"no model":     `{"requestId":"a"}`,
		"negative row": `{"requestId":"a","model":"m","row":-1}`,
		"wrong type":   `{"requestId":7,"model":"m"}`,
		"id too big":   `{"requestId":"a","model":"m","inputs":{"u":9223372036854775808}}`,
		"oversized":    `{"requestId":"` + strings.Repeat("a", impression.MaxBytes) + `","model":"m"}`,
	} {
		if i, err := impression.Decode([]byte(data)); !errors.Is(err, impression.ErrMalformed) {
			t.Errorf("%s: Decode = %+v, %v; want ErrMalformed", name, i, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{"requestId":"a","model":"m","rows":null}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`{"requestId":"a","model":"m","inputs":{"a":[1,2],"b":[],"c":null,"d":[7]},"more":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := impression.Decode(data)
		if err != nil {
			return
		}
		b, err := impression.Encode(i)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := impression.Decode(b)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, b)
		}
		if diff := cmp.Diff(i, again); diff != "" {
			t.Fatalf("changed on the way (-first +second):\n%s", diff)
		}
	})
}

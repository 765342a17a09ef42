package rating

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordGolden(t *testing.T) {
	for _, tc := range []struct {
		r    Rating
		want string
	}{
		{Rating{1, 2, 4, 964982703}, `{"userId":1,"movieId":2,"rating":4.0,"timestamp":964982703}`},
		{Rating{610, 170875, 3.5, 0}, `{"userId":610,"movieId":170875,"rating":3.5,"timestamp":0}`},
		{Rating{MaxID, 0, 0, math.MaxInt64}, `{"userId":281474976710655,"movieId":0,"rating":0.0,"timestamp":9223372036854775807}`},
		{Rating{1, 1, 1e-9, 1}, `{"userId":1,"movieId":1,"rating":0.000000001,"timestamp":1}`},
	} {
		got := tc.r.AppendJSON(nil)
		if string(got) != tc.want {
			t.Errorf("AppendJSON(%+v) = %s, want %s", tc.r, got, tc.want)
		}
		if back, err := Decode(got); err != nil || back != tc.r {
			t.Errorf("Decode(%s) = %+v, %v", got, back, err)
		}
	}
	if _, err := (Rating{Rating: math.NaN()}).MarshalJSON(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a NaN was written: %v", err)
	}
}

func TestDecodeRejects(t *testing.T) {
	const ok = `{"userId":1,"movieId":2,"rating":4.0,"timestamp":3}`
	if _, err := Decode([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, data, says string }{
		{"empty", ``, "EOF"},
		{"cut short", ok[:len(ok)-1], "EOF"},
		{"two objects", ok + ok, "behind the object"},
		{"trailing rubbish", ok + "x", "behind the object"},
		{"array", `[1,2,4,3]`, "not an object"},
		{"null", `null`, "not an object"},
		{"other case", `{"userid":1,"movieId":2,"rating":4.0,"timestamp":3}`, "unknown field"},
		{"unknown field", ok[:len(ok)-1] + `,"x":1}`, "unknown field"},
		{"field twice", ok[:len(ok)-1] + `,"userId":1}`, "twice"},
		{"field missing", `{"userId":1,"movieId":2,"rating":4.0}`, `"timestamp" is missing`},
		{"string", `{"userId":"1","movieId":2,"rating":4.0,"timestamp":3}`, "not a number"},
		{"nested", `{"userId":{},"movieId":2,"rating":4.0,"timestamp":3}`, "not a number"},
		{"feature of another kind", ok[:len(ok)-1] + `,"genres":"Drama"}`, "genres"},
		{"fraction of a user", `{"userId":1.5,"movieId":2,"rating":4.0,"timestamp":3}`, "userId"},
		{"id of 49 bits", `{"userId":281474976710656,"movieId":2,"rating":4.0,"timestamp":3}`, "2^48"},
		{"negative movie", `{"userId":1,"movieId":-2,"rating":4.0,"timestamp":3}`, "movieId"},
		{"six stars", `{"userId":1,"movieId":2,"rating":6,"timestamp":3}`, "within 0 and 5"},
		{"overflow", `{"userId":1,"movieId":2,"rating":1e999,"timestamp":3}`, "rating"},
		{"before 1970", `{"userId":1,"movieId":2,"rating":4,"timestamp":-1}`, "1970"},
	} {
		got, err := Decode([]byte(tc.data))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: Decode = %+v, %v; want an error that says %q", tc.name, got, err, tc.says)
		}
	}
}

func TestSortIsByTimeUserMovie(t *testing.T) {
	want := []Rating{{9, 9, 1, 1}, {1, 1, 1, 2}, {1, 2, 1, 2}, {1, 2, 3, 2}, {2, 1, 1, 2}, {1, 1, 1, 3}}
	got := slices.Clone(want)
	slices.Reverse(got)
	Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLabel(t *testing.T) {
	if (Rating{Rating: 3}).Label() || !(Rating{Rating: 3.5}).Label() {
		t.Error("the threshold of 3.5 stars is off")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"userId":1,"movieId":2,"rating":4.0,"timestamp":964982703}`))
	f.Add([]byte(`{"timestamp":1,"rating":0.5,"movieId":2,"userId":1} `))
	f.Add([]byte(`{"userId":1,"userId":1}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error without its sentinel: %v", err)
			}
			return
		}
		back, err := Decode(r.AppendJSON(nil))
		if err != nil || back != r {
			t.Fatalf("%+v came back as %+v, %v", r, back, err)
		}
	})
}

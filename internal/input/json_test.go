package input

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// strict is what the demo asks of its records.
var strict = Options{Max: 5, TimeField: "timestamp"}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, record string
		user, movie  int64
		label        float32
		reason       string
	}{
		{"as the demo writes it", `{"userId":1,"movieId":2,"rating":4.0,"timestamp":964982703}`, 1, 2, 1, ""},
		{"strings, spaces, other fields", ` { "rating":"3.4999" , "x":{"y":[1]}, "movieId":"007","userId":"281474976710655" } `, modelspec.MaxID, 7, 0, ""},
		{"on the threshold", `{"userId":0,"movieId":0,"rating":3.5}`, 0, 0, 1, ""},
		{"empty", ``, 0, 0, 0, "empty"},
		{"cut short", `{"userId":1,`, 0, 0, 0, "not one JSON object"},
		{"two objects", `{"userId":1,"movieId":2,"rating":4}{}`, 0, 0, 0, "not one JSON object"},
		{"null", `null`, 0, 0, 0, `"userId" is missing`},
		{"missing", `{"userId":1,"rating":4}`, 0, 0, 0, `"movieId" is missing`},
		{"null field", `{"userId":null,"movieId":2,"rating":4}`, 0, 0, 0, `"userId" is missing`},
		{"fraction", `{"userId":1.5,"movieId":2,"rating":4}`, 0, 0, 0, "not a whole number"},
		{"negative", `{"userId":-1,"movieId":2,"rating":4}`, 0, 0, 0, "outside 0 to 2^48-1"},
		{"49 bits", `{"userId":281474976710656,"movieId":2,"rating":4}`, 0, 0, 0, "outside 0 to 2^48-1"},
		{"object", `{"userId":{},"movieId":2,"rating":4}`, 0, 0, 0, "not a whole number"},
		{"label NaN", `{"userId":1,"movieId":2,"rating":"NaN"}`, 0, 0, 0, "not a number"},
		{"label true", `{"userId":1,"movieId":2,"rating":true}`, 0, 0, 0, "not a number"},
		{"label beyond its range", `{"userId":1,"movieId":2,"rating":99}`, 0, 0, 0, "outside 0 to 5"},
		{"label below its range", `{"userId":1,"movieId":2,"rating":"-0.5"}`, 0, 0, 0, "outside 0 to 5"},
		{"label at the ends of its range", `{"userId":1,"movieId":2,"rating":5,"timestamp":"0"}`, 1, 2, 1, ""},
		{"before 1970", `{"userId":1,"movieId":2,"rating":4,"timestamp":-5}`, 0, 0, 0, "not in whole seconds since 1970"},
		{"in milliseconds", `{"userId":1,"movieId":2,"rating":4,"timestamp":964982703000}`, 0, 0, 0, "not in whole seconds since 1970"},
		{"a key twice", `{"userId":1,"movieId":2,"rating":4,"userId":1}`, 0, 0, 0, `field "userId" stands there twice`},
		{"a key twice, once escaped", `{"userId":1,"movieId":2,"rating":4,"\u0075serId":3}`, 0, 0, 0, `field "userId" stands there twice`},
		{"a key twice that nobody reads", `{"userId":1,"movieId":2,"rating":4,"x":1,"x":1}`, 0, 0, 0, `field "x" stands there twice`},
		{"keys within values", `{"userId":1,"movieId":2,"rating":4,"x":{"a":1,"a":[{"b":2}]},"y":"\":\\"}`, 1, 2, 1, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := New(modelspec.MovieRanking(), strict).Decode([]byte(tc.record))
			if tc.reason != "" {
				if err == nil || !strings.Contains(err.Error(), tc.reason) {
					t.Fatalf("Decode = %+v, %v; want a reason with %q", s, err, tc.reason)
				}
				return
			}
			if err != nil || s.Labels[0] != tc.label || !slices.EqualFunc(s.IDs, [][]int64{{modelspec.FID(1, tc.user)}, {modelspec.FID(2, tc.movie)}}, slices.Equal) {
				t.Fatalf("Decode = %+v, %v", s, err)
			}
		})
	}
}

// The times that a record may name, in its own field, and labels at the ends of their range.
func TestTimesInRecords(t *testing.T) {
	spec := modelspec.MovieRanking()
	for stamp, ok := range map[string]bool{"0": true, "-1": false, "4294967295": true, "4294967296": false, `"7"`: true, "1.5": false, "null": false, `"x"`: false} {
		record := fmt.Sprintf(`{"userId":1,"movieId":2,"rating":4,"ts":%s}`, stamp)
		if _, err := New(spec, Options{TimeField: "ts"}).Decode([]byte(record)); (err == nil) != ok {
			t.Errorf("%s: %v", record, err)
		}
		if _, err := New(spec, Options{}).Decode([]byte(record)); err != nil {
			t.Errorf("%s, where nobody looks at it: %v", record, err)
		}
	}
	for rating, ok := range map[string]bool{"0.5": true, "0.49": false, "5": true, "5.01": false} {
		if _, err := New(spec, Options{Min: 0.5, Max: 5}).Decode(fmt.Appendf(nil, `{"userId":1,"movieId":2,"rating":%s}`, rating)); (err == nil) != ok {
			t.Errorf("a rating of %s: %v", rating, err)
		}
	}
}

// hostile are records at the edges of JSON.
func hostile() (all []string) {
	all = []string{
		``, ` `, "\v", "\u00a0", `{}`, ` {} `, `{`, `}`, `{,}`, `[]`, `1`, `"a"`, `true`, `null`, ` null `, `nul`, `nullx`, `null x`, "\ufeff{}", `{}x`,
		`{"userId":1,"movieId":2,"rating":4.0}`, "\t{\n\"userId\"\r:\t1 , \"movieId\":2,\"rating\" :4}\n", "{\"userId\":1,\"movieId\":2,\"rating\":4\v}",
		`{"userId":"1","movieId":"2","rating":"4e0"}`, `{"userId":[1],"movieId":"\u0031","rating":-0}`, `{"userId":1,"movieId":2,"rating":4,"a":{"b":":"},"a\\":"\""}`,
		`{"userId":1,"movieId":2,"rating":4,"userId":3,}`, `{"userId":1,"userId":3,"movieId":2,"rating":4,"x":}`, `{"userId":1,"movieId":2,"rating":4,"timestamp":5,"timestamp":6}`,
		`{"\ud83d\ude00":1,"😀":2}`, `{"\ud83d":1,"\ufffd":2}`, `{"\ude00\ud83d":1,"\ufffd\ufffd":2}`, `{"\ud83d\u0041":1,"\ufffdA":2}`, `{"\ud83d\ud83d\ude00":1,"\ufffd😀":1}`, "{\"\xff\":1,\"\\uFFFD\":2}", "{\"\xff\":1,\"\xfe\":2}", "{\"\xed\xa0\x80\":1,\"\xff\xff\xff\":1}", "{\"é\":1,\"\\u00e9\":2}", `{"ª":1,"\u00aA":2}`, `{"ÿ":1,"\u00fF":2}`,
		"{\"userId\":\"1\x01\"}", "{\"userId\":\"1\x7f\"}", "{\"use\nrId\":1}", `{"userId":"\x"}`, `{"userId":"\u12"}`, `{"userId":"\u12G4"}`, `{"userId":"\u`, `{"userId":"\`, `{"userId":"`, `{"userId"`, `{"userId" 1}`, `{"userId":`, `{"userId":1`, `{"a":1,`, `{a:1}`, `{'a':1}`,
		`{"a":[],"b":{},"c":[[]],"d":[{}],"e":{"f":[1,{"g":null}]}}`, `{"a":[,]}`, `{"a":[1,]}`, `{"a":[1}`, `{"a":{"b":1]}`, `{"a":{1:2}}`, `{"a":{"b"}}`, `{"a":{"b":1,}}`, `{"a":[1 2]}`, `{"a":{"b":1 "c":2}}`, `{"a":[`, `{"a":{`, `{"a":{"b":`, `{"a":[1`, `{"a":[1,`, `{"a":[1]`, `{"a":]}`,
	}
	for _, n := range []string{"0", "-0", "00", "01", "-", "+1", ".5", "1.", "1.e1", "1e", "1e+", "1E-7", "1e400", "-1.5e+3", "0x10", "NaN", "Infinity", "1_0", "12345678901234567", "999999999999999999", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "100000000000000000000", "281474976710655", "281474976710656", "tru", "true", "truex", "fals", "false", "falsey", "nulll", "1a", "--1", "1-"} {
		for _, f := range []string{`{"userId":%s,"movieId":2,"rating":4}`, `{"userId":1,"movieId":2,"rating":%s}`, `{"userId":1,"movieId":2,"rating":4,"timestamp":%s}`} {
			all = append(all, fmt.Sprintf(f, n), fmt.Sprintf(f, `"`+n+`"`), fmt.Sprintf(f, "["+n+"]"))
		}
	}
	for _, s := range []string{"", "+7", " 7", "7 ", "0x1p-2", "0x_1p-2", "inf", "\\u0037", "\\u0660", "7\xff", "é", strings.Repeat("é", 50), strings.Repeat("1", 50)} {
		all = append(all, fmt.Sprintf(`{"userId":"%s","movieId":2,"rating":4}`, s), fmt.Sprintf(`{"userId":1,"movieId":2,"rating":"%s"}`, s))
	}
	for _, depth := range []int{9998, 9999, 10000} {
		all = append(all, `{"a":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`,"userId":1,"movieId":2,"rating":4}`,
			`{"a":`+strings.Repeat(`{"b":`, depth)+"1"+strings.Repeat("}", depth)+`,"userId":1,"movieId":2,"rating":4}`)
	}
	for _, n := range []int{12, 13, 500} { // undeclared keys, one of which may stand there twice
		var b bytes.Buffer
		b.WriteString(`{"userId":1,"movieId":2,"rating":4`)
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":%d`, i*7919%n, i)
		}
		all = append(all, b.String()+"}", b.String()+`,"k3":1}`, b.String()+`,"\u006b3":1}`, b.String()+`,"k3":1,"k2":1`)
	}
	return all
}

// alike fails unless d reads the record as the reference does, to the sentence.
func alike(t *testing.T, d *Decoder, record []byte) {
	t.Helper()
	want, wantErr := reference(d.spec, d.options, record)
	got, err := d.Decode(record)
	switch {
	case (err == nil) != (wantErr == nil), err != nil && err.Error() != wantErr.Error():
		t.Errorf("%.300q: %v; encoding/json: %v", record, err, wantErr)
	case err == nil && !sameSample(got, want):
		t.Errorf("%.300q: %v; encoding/json: %v", record, got, want)
	}
}

// A decoder takes and refuses what encoding/json does, with the same sentences, whatever it has
// read before.
func TestRecordsAreReadAsEncodingJSONReadsThem(t *testing.T) {
	spec := modelspec.MovieRanking()
	loose, tight := New(spec, Options{}), New(spec, strict)
	lists := New(richSpec(), Options{Max: 5, TimeField: "timestamp"})
	rng := rand.New(rand.NewPCG(1, 2))
	const breaking = "{}[]\",:\\u0-e. \x00\xff"
	for _, record := range richRecords() {
		alike(t, lists, []byte(record))
		for range 100 {
			b := []byte(record)
			b[rng.IntN(len(b))] = breaking[rng.IntN(len(breaking))]
			alike(t, lists, b)
		}
	}
	for _, record := range hostile() {
		alike(t, loose, []byte(record))
		alike(t, tight, []byte(record))
		if len(record) > 1000 {
			continue
		}
		for cut := range len(record) {
			alike(t, tight, []byte(record[:cut]))
		}
		for range 20 { // one byte is another
			if b := []byte(record); len(b) > 0 {
				b[rng.IntN(len(b))] = breaking[rng.IntN(len(breaking))]
				alike(t, tight, b)
			}
		}
	}
}

// One field may be several features' and the label's too.
func TestAFieldOfSeveral(t *testing.T) {
	spec := modelspec.MovieRanking()
	spec.Features[1].Field, spec.Label.Field = "userId", "userId"
	d := New(spec, Options{TimeField: "userId"})
	for _, record := range []string{`{"userId":3}`, `{"userId":4}`, `{"userId":"\u0034"}`, `{"userId":4,"userId":4}`, `{"userId":4294967296}`, `{}`} {
		alike(t, d, []byte(record))
	}
}

// A record with more keys and text than usual is read, and not paid for ever after.
func TestWhatADecoderKeeps(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"userId":1,"movieId":2,"rating":4`)
	for i := range 2 * maxKeys {
		fmt.Fprintf(&b, `,"a long key with an escape \u0020 %d":0`, i)
	}
	b.WriteString("}")
	d := New(modelspec.MovieRanking(), Options{})
	if _, err := d.Decode(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if len(d.strange) != 2*maxKeys || len(d.text) <= maxText || len(d.order) != maxKeys {
		t.Fatalf("%d keys, %d bytes of text, an order of %d", len(d.strange), len(d.text), len(d.order))
	}
	alike(t, d, []byte(`{"userId":1,"movieId":2,"rating":4,"x":0,"y":1,"z":2}`))
	alike(t, d, []byte(`{"userId":1,"movieId":2,"rating":4,"x":0}`))
	if cap(d.strange) > maxKeys || cap(d.text) > maxText {
		t.Errorf("%d keys and %d bytes of text are kept", cap(d.strange), cap(d.text))
	}
	for _, k := range d.strange[1:cap(d.strange)] {
		if k != nil {
			t.Error("a record is held by one of its keys")
		}
	}
	alike(t, d, b.Bytes())
}

func FuzzJSON(f *testing.F) {
	for _, record := range hostile() {
		f.Add([]byte(record))
	}
	for _, record := range richRecords() {
		f.Add([]byte(record))
	}
	spec := modelspec.MovieRanking()
	loose, tight := New(spec, Options{}), New(spec, strict)
	lists := New(richSpec(), Options{Max: 5, TimeField: "timestamp"})
	f.Fuzz(func(t *testing.T, record []byte) {
		for range 2 { // the second time the keys stand where they are expected
			alike(t, lists, record)
			alike(t, loose, record)
			alike(t, tight, record)
		}
	})
}

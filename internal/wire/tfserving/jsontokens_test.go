package tfserving

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// sameTokens holds what is read of text, as r has it, against encoding/json's decoder.
func sameTokens(t *testing.T, text []byte, r io.Reader) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	got := newTokens(r)
	for i := range 1000 {
		if d.More() != got.more() {
			t.Fatalf("%q: more before token %d is %v", text, i, got.more())
		}
		want, wantErr := d.Token()
		k, err := got.next()
		if (err == nil) != (wantErr == nil) || errors.Is(err, io.EOF) != errors.Is(wantErr, io.EOF) {
			t.Fatalf("%q: token %d has the error %v, want %v", text, i, err, wantErr)
		}
		if err != nil {
			return
		}
		if d.InputOffset() != got.offset() {
			t.Fatalf("%q: token %d ends at %d, want %d", text, i, got.offset(), d.InputOffset())
		}
		var is any
		switch k.kind {
		case 0:
			is = json.Number(k.text)
		case '"':
			is = string(k.text)
		case 't', 'f':
			is = k.kind == 't'
		case 'n':
		default:
			is = json.Delim(k.kind)
		}
		if is != want {
			t.Fatalf("%q: token %d is %#v, want %#v", text, i, is, want)
		}
	}
}

// FuzzTokens wants encoding/json's tokens of any text, however it arrives.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{
		`{"instances":[{"user":1,"movie":2},{"user":-0.5e+7,"movie":[]}]}`, `[1,]`, `[,1]`, `{"a":1,}`, `{"a" 1}`, `{"a"}`, `{1:2}`, `[1 2]`, `{"a":1 "b":2}`, `[1}`,
		`[01]`, `[1.]`, `[.5]`, `[1e]`, `[-]`, `[1-2]`, `[1.5.5]`, `[1e5e5]`, `[+1]`, `-`, `1`, `1.`, `12 13`, `tru`, `[truex]`, `nul]`, `[false,null,true]`, `[fa"]`,
		`"\u00e9\ud83d\ude00\ud800"`, "\"\xff\"", `"\q"`, `"\u12"`, "\"a\nb\"", `"a`, `"a\`, `"\"`, `"\\"`, "  \t\n [ 1 , 2 ] \r\n", ``, ` `, `]`, `}`, `:`, `,`, "\x00", `[[[[{"":{}}]]]]`, `{"é":"ü"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		sameTokens(t, text, bytes.NewReader(text))
		sameTokens(t, text, iotest.OneByteReader(bytes.NewReader(text)))
		sameTokens(t, text, iotest.DataErrReader(bytes.NewReader(text)))
	})
}

// A reader's failure is the caller's to know, not the text's end.
func TestTokensOfAFailedReader(t *testing.T) {
	broken := errors.New("broken")
	for _, head := range []string{``, `[`, `[1`, `["a`, `[tr`, `[1,`} {
		d := newTokens(io.MultiReader(bytes.NewReader([]byte(head)), iotest.ErrReader(broken)))
		var err error
		for err == nil {
			_, err = d.next()
		}
		if !errors.Is(err, broken) {
			t.Errorf("behind %q: %v", head, err)
		}
	}
}

package tfserving_test

import (
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// White space is dropped between tokens alone.
func TestSpaceInNamesStays(t *testing.T) {
	name := "a \"" + strings.Repeat(" ", 5000) + "\\"
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	space := strings.Repeat(" \n\t\r", 5000)
	body := space + `{"signature_name"` + space + `:` + space + string(quoted) + space + `,"instances":[` + space + `1` + space + `,2]` + space + `}` + space
	for what, r := range map[string]io.Reader{"whole": strings.NewReader(body), "byte by byte": iotest.OneByteReader(strings.NewReader(body))} {
		p, err := tfserving.DecodePredict(r, one, 16)
		if err != nil || p.Signature != name || len(p.Inputs["x"].GetFloatVal()) != 2 {
			t.Errorf("%s: %d bytes of a name, %v, %v", what, len(p.Signature), p.Inputs, err)
		}
	}
}

// endless is head, then more again and again, up to so many bytes in all.
func endless(head, more string, size int) io.Reader {
	n := (size - len(head)) / len(more)
	parts := []io.Reader{strings.NewReader(head)}
	const piece = 1 << 12
	block := strings.Repeat(more, piece)
	for ; n > 0; n -= piece {
		parts = append(parts, strings.NewReader(block))
	}
	return io.MultiReader(parts...)
}

// Whatever a body of the greatest size holds, reading it takes little more memory than
// the batch that is allowed.
func TestBodiesAreReadWithinBounds(t *testing.T) {
	const limit, most = 4096, 4 << 20
	for name, body := range map[string]struct{ head, more string }{
		"rows of numbers":          {`{"instances":[0`, ",0"},
		"rows of objects":          {`{"instances":[{"user":1,"movie":2}`, `,{"user":1,"movie":2}`},
		"rows of nothing":          {`{"instances":[{}`, ",{}"},
		"columns of lists":         {`{"inputs":{"user":[[]`, ",[]"},
		"columns of numbers":       {`{"inputs":{"user":[0`, ",0"},
		"lists in lists":           {`{"inputs":{"user":`, "["},
		"inputs of many names":     {`{"inputs":{"a":0`, `,"a":0`},
		"members that nobody asks": {`{"a":0`, `,"a":{"b":[1,2]}`},
		"nested for nobody":        {`{"a":`, "["},
		"a row that never ends":    {`{"instances":[{"user":[1`, ",1"},
		"space":                    {`{`, " "},
	} {
		var before, after runtime.MemStats
		in := endless(body.head, body.more, tfserving.MaxBody)
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := tfserving.DecodePredict(in, two, limit)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: it passes", name)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d KiB allocated, want at most %d: %v", name, got>>10, most>>10, err)
		}
	}
}

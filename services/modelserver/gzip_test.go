package modelserver

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A body that is compressed is read as the one within it, within the same bounds.
func TestCompressedBodies(t *testing.T) {
	s, _ := viewing(t, Config{Frozen: true, LookupTimeout: wait.Patience})
	answers(t, s, "m")
	const good = `{"instances":[{"user":1,"movie":2}]}`
	for name, tc := range map[string]struct {
		encoding string
		body     []byte
		want     int
		says     string
	}{
		"none":           {"", []byte(good), http.StatusServiceUnavailable, "no replica"}, // it was read: no shard has the rows
		"gzip":           {"gzip", zipped(t, good), http.StatusServiceUnavailable, "no replica"},
		"GZIP":           {" GZIP", zipped(t, good), http.StatusServiceUnavailable, "no replica"},
		"not gzip":       {"gzip", []byte(good), http.StatusBadRequest, "the body is not gzip"},
		"cut short":      {"gzip", zipped(t, good)[:20], http.StatusBadRequest, "JSON Parse error"},
		"another":        {"br", []byte(good), http.StatusBadRequest, "send gzip or none"},
		"a small bomb":   {"gzip", zipped(t, `{"x":"`+strings.Repeat("x", tfserving.MaxBody)+`"}`), http.StatusBadRequest, "the body has more than"},
		"as one says it": {"identity", []byte(good), http.StatusServiceUnavailable, "no replica"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/models/m:predict", bytes.NewReader(tc.body))
		r.Header.Set("Content-Encoding", tc.encoding)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != tc.want || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: %d %s; want %d saying %q", name, w.Code, w.Body, tc.want, tc.says)
		}
	}
	if !s.bodies.TryAcquire(maxBodies) {
		t.Error("bytes of bodies stay taken")
	}
}

// Answers are compressed for those who take that, and from a size on.
func TestCompressedAnswers(t *testing.T) {
	long := strings.Repeat("0.5, ", minZipped/5+1)
	for accept, want := range map[string]bool{"": false, "gzip": true, "br, gzip;q=0.5": true, "*": true, "gzip; q=0": false, "deflate": false, "gzip;q=x": false} {
		for _, body := range []string{long, "short"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", accept)
			w := httptest.NewRecorder()
			write(w, r, http.StatusNotFound, []byte(body))
			got := w.Body.String()
			if w.Header().Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				all, err := io.ReadAll(z)
				if got = string(all); err != nil {
					t.Errorf("%q: %v", accept, err)
				}
			}
			if is := w.Header().Get("Content-Encoding") == "gzip"; is != (want && body == long) || got != body || w.Code != http.StatusNotFound {
				t.Errorf("%q: %d bytes with code %d, compressed: %v", accept, len(body), w.Code, is)
			}
		}
	}
}

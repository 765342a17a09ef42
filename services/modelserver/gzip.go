package modelserver

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// minZipped is the size from which an answer is worth compressing.
const minZipped = 1 << 10

// zippers are used again: one holds some 800 KiB.
var zippers = sync.Pool{New: func() any { z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return z }} // the level is a good one

// plain is the body of a request as it was before it was encoded, of bounded size either way.
func plain(w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	body := http.MaxBytesReader(w, r.Body, tfserving.MaxBody)
	switch encoding := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "the body is not gzip, which its Content-Encoding says: %v", err)
		}
		return http.MaxBytesReader(w, z, tfserving.MaxBody), nil
	default:
		return nil, status.Errorf(codes.InvalidArgument, "the body has the Content-Encoding %q; send gzip or none", encoding)
	}
}

// zips says whether the caller takes gzip.
func zips(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, q, _ := strings.Cut(part, ";")
		if name = strings.ToLower(strings.TrimSpace(name)); name != "gzip" && name != "*" {
			continue
		}
		weight, weighted := strings.CutPrefix(strings.ReplaceAll(q, " ", ""), "q=")
		v, err := strconv.ParseFloat(weight, 64)
		return !weighted || err == nil && v > 0
	}
	return false
}

// write answers, compressed where the caller takes it and it is worth it. That the client is gone,
// nobody is to be told.
func write(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Vary", "Accept-Encoding")
	if len(body) < minZipped || !zips(r) {
		w.WriteHeader(code)
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	z := zippers.Get().(*gzip.Writer)
	z.Reset(w)
	_, _ = z.Write(body)
	_ = z.Close()
	z.Reset(nil) // of this request nothing is held
	zippers.Put(z)
}

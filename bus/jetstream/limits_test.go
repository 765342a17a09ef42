package jetstream_test

import (
	"testing"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream"
)

// An operator's limit of a stream stays at the next start, unless that start names one.
func TestAnOperatorsLimitStays(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	_, js := raw(t, s)
	for _, c := range []struct {
		stream string
		named  jetstream.Config
	}{
		{wire.LogStream, jetstream.Config{LogMaxBytes: 3 << 20}},
		{wire.SyncStream, jetstream.Config{SyncMaxBytes: 3 << 20}},
		{wire.LetterStream, jetstream.Config{LetterMaxBytes: 3 << 20}},
	} {
		limit := func() int64 {
			stream, err := js.Stream(t.Context(), c.stream)
			if err != nil {
				t.Fatal(err)
			}
			return stream.CachedInfo().Config.MaxBytes
		}
		connect(t, jetstream.Config{URL: s.URL()})
		stream, err := js.Stream(t.Context(), c.stream)
		if err != nil {
			t.Fatal(err)
		}
		edited := stream.CachedInfo().Config
		if edited.MaxBytes == 5<<20 {
			t.Fatalf("%s holds %d bytes before anybody edited it", c.stream, edited.MaxBytes)
		}
		edited.MaxBytes = 5 << 20
		if _, err := js.UpdateStream(t.Context(), edited); err != nil {
			t.Fatal(err)
		}
		connect(t, jetstream.Config{URL: s.URL()})
		if got := limit(); got != 5<<20 {
			t.Errorf("%s: the operator's 5 MiB became %d bytes", c.stream, got)
		}
		c.named.URL = s.URL()
		connect(t, c.named)
		if got := limit(); got != 3<<20 {
			t.Errorf("%s: of the 3 MiB that were asked for it became %d bytes", c.stream, got)
		}
	}
}

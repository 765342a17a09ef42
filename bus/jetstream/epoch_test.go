package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Facts and shards remember the epochs of leases. A bucket of leases that was lost and is made
// anew grants none below them: it would fence every holder for ever.
func TestEpochsRiseAcrossALostBucket(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for life := range 4 {
		b := connect(t, jetstream.Config{URL: s.URL()})
		if life == 1 { // a log with events is as good as one without
			if _, err := b.Log().Append(ctx, draft("a", "event", bus.Any)); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			l, release, err := b.Leases().TryAcquire(ctx, "chief", "one", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if l.Epoch <= last {
				t.Fatalf("life %d: epoch %d follows %d", life, l.Epoch, last)
			}
			last = l.Epoch
			release()
		}
		if last > 1<<53 {
			t.Errorf("epoch %d is no number of JSON any more", last)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteKeyValue(ctx, "MONOLITH_LEASES"); err != nil {
			t.Fatal(err)
		}
		for uint64(time.Now().UnixMilli()) <= last { // a quick disk takes more than a revision in a millisecond
			<-time.After(time.Millisecond)
		}
	}
}

// A bucket of leases as nats.go makes them, whose keys do not run out, is amended.
func TestABucketWhoseLeasesDoNotRunOutIsAmended(t *testing.T) {
	s := startServer(t, t.TempDir(), 0)
	_, js := raw(t, s)
	if _, err := js.CreateKeyValue(t.Context(), natsjs.KeyValueConfig{Bucket: "MONOLITH_LEASES"}); err != nil {
		t.Fatal(err)
	}
	b := connect(t, jetstream.Config{URL: s.URL()})
	_, release, err := b.Leases().TryAcquire(t.Context(), "chief", "one", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	release()
	st, err := js.Stream(t.Context(), "KV_MONOLITH_LEASES")
	if err != nil {
		t.Fatal(err)
	}
	if have := st.CachedInfo().Config; !have.AllowMsgTTL || have.SubjectDeleteMarkerTTL == 0 || have.MaxBytes <= 0 || have.Discard != natsjs.DiscardNew {
		t.Errorf("it is %+v", have)
	}
}

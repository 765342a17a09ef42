package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// TestOracle holds Apache Kafka to the contract that the embedded broker is held to.
func TestOracle(t *testing.T) {
	contract(t, []string{oracle.Kafka(t).Addr})
}

// TestOracleKill kills Apache Kafka under a writer and a waiting reader, and starts it
// again: what was acked is in its place, nothing is there twice, and both go on.
func TestOracleKill(t *testing.T) {
	k := oracle.Kafka(t)
	brokers := []string{k.Addr}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := Plain.EnsureTopics(ctx, brokers, map[string]int32{"ratings": 1}); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(WriterConfig{Brokers: brokers})
	defer w.Close()
	r := NewReader(ReaderConfig{Brokers: brokers, Topic: "ratings", MaxWait: 10 * time.Second})
	defer r.Close()
	acked := map[int64]string{}
	killed := make(chan struct{})
	for n := 0; ; n++ {
		if n == 100 {
			go func() { // while writes go on
				defer close(killed)
				k.Kill()
			}()
		}
		v := fmt.Sprint(n)
		recs, err := w.Write(ctx, Record{Topic: "ratings", Value: []byte(v)})
		if err != nil {
			if n < 100 {
				t.Fatal(err)
			}
			break
		}
		acked[recs[0].Offset] = v
	}
	<-killed
	got := make(chan []Record, 1)
	go func() { // waits through the broker's absence; a write of unknown outcome may stand there
		recs, _, err := r.Fetch(ctx, int64(len(acked)))
		for err == nil && len(recs) == 0 {
			recs, _, err = r.Fetch(ctx, int64(len(acked)))
		}
		if err != nil {
			t.Error(err)
		}
		got <- recs
	}()
	k.Restart(t)
	for {
		_, err := w.Write(ctx, Record{Topic: "ratings", Value: []byte("after")})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if recs := <-got; len(recs) == 0 || recs[0].Offset != int64(len(acked)) {
		t.Fatalf("the waiting reader got %+v", recs)
	}
	seen := map[string]bool{}
	for _, rec := range drain(t, ctx, r, 0) {
		v := string(rec.Value)
		if seen[v] && v != "after" {
			t.Fatalf("%s is stored twice", v)
		}
		seen[v] = true
		if want, ok := acked[rec.Offset]; ok && want != v {
			t.Fatalf("offset %d holds %s, acked was %s", rec.Offset, v, want)
		}
	}
	for offset, v := range acked {
		if !seen[v] {
			t.Fatalf("%s, acked at %d, is lost", v, offset)
		}
	}
}

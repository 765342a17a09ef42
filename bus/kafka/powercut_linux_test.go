package kafka

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/powercut"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Where a name is on disk after a sync of its folder alone, every record that was acked is
// there after a cut, also in segments that were begun and topics that were made since the
// start; and the broker goes on behind it, and has it after the next cut.
func TestPowerCut(t *testing.T) {
	for name, policy := range map[string]powercut.Policy{"journal": powercut.Journal, "strict": powercut.Strict} {
		t.Run(name, func(t *testing.T) {
			mount, disk := powercut.ForTest(t, policy)
			dir, addr := filepath.Join(mount, "data", "kafka"), freeAddr(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*wait.Patience)
			defer cancel()
			const records, size = 60, 700 << 10 // segments of 32 MiB: two in each life
			for life := range 2 {
				cmd := startProcess(t, dir, addr)
				if err := Plain.EnsureTopics(ctx, []string{addr}, map[string]int32{"later": 1}); err != nil {
					t.Fatal(err)
				}
				w := NewWriter(WriterConfig{Brokers: []string{addr}})
				for i := range records {
					topic, value := "ratings", bytes.Repeat([]byte{byte(life), byte(i)}, size/2)
					if i%10 == 9 {
						topic = "later"
					}
					if _, err := w.Write(ctx, Record{Topic: topic, Value: value}); err != nil {
						t.Fatal(err)
					}
				}
				w.Close()
				segments, err := filepath.Glob(filepath.Join(dir, "partitions", "ratings-0", "*.dat"))
				if err != nil || len(segments) < 2 {
					t.Fatalf("segments %q, %v: nothing is tested", segments, err)
				}
				wait.Seen(t, "the names on disk", func() (string, bool) {
					names := disk.Unsynced()
					return fmt.Sprintf("%q are not", names), len(names) == 0 || policy == powercut.Journal
				})
				kill, gone := func() { _ = cmd.Process.Kill() }, func() { _ = cmd.Wait() } // it was killed
				if err := disk.Cut(powercut.Nothing, nil, kill, gone); err != nil {
					t.Fatal(err)
				}
			}
			b := start(t, BrokerConfig{Dir: dir, Addr: addr})
			defer b.Close() // before the disk is gone
			for topic, per := range map[string]int{"ratings": records * 9 / 10, "later": records / 10} {
				r := NewReader(ReaderConfig{Brokers: []string{addr}, Topic: topic, MaxBytes: 4 << 20})
				got := drain(t, ctx, r, 0)
				r.Close()
				if len(got) != 2*per {
					t.Fatalf("%d records of %s are left, want %d", len(got), topic, 2*per)
				}
				for i, rec := range got {
					if len(rec.Value) != size || int(rec.Value[0]) != i/per {
						t.Fatalf("record %d of %s: %d bytes of life %d", i, topic, len(rec.Value), rec.Value[0])
					}
				}
			}
		})
	}
}

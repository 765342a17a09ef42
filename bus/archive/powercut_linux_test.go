package archive_test

import (
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/bus/archive"
	"github.com/monolith-go/monolith/internal/testenv/powercut"
)

// What a writer has sealed is there after a cut, also where a name is on disk after a sync
// of its folder alone; and the writer goes on behind it.
func TestPowerCut(t *testing.T) {
	for name, policy := range map[string]powercut.Policy{"journal": powercut.Journal, "strict": powercut.Strict} {
		t.Run(name, func(t *testing.T) {
			mount, disk := powercut.ForTest(t, policy)
			b, dir := story(t, 120), filepath.Join(mount, "srv", "archive")
			cut := func() {
				t.Helper()
				if err := disk.Cut(powercut.Nothing, nil, func() {}, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			o := archive.WriterOptions{Events: 20}
			for _, until := range []uint64{50, 120} {
				write(t, dir, b.Log(), until, o)
				cut()
				a, err := archive.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := a.Verify(); n != until || err != nil {
					t.Fatalf("%d of %d events are left, %v", n, until, err)
				}
			}
		})
	}
}

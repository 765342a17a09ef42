package powercut

import (
	"os"
	"testing"
)

// ForTest mounts one in a folder of the test's. Without root and /dev/fuse the test skips,
// and with CI=true it fails.
func ForTest(t testing.TB, p Policy) (dir string, f *FS) {
	t.Helper()
	dir = t.TempDir()
	f, err := Mount(dir, p)
	if err != nil {
		const why = "a file system cannot be mounted here, which takes root and /dev/fuse"
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: %v", why, err)
		}
		t.Skipf("SKIPPED: %s: %v", why, err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, f
}

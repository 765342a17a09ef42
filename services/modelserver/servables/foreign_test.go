package servables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/monolith-go/monolith/internal/compat/tfgraph"
)

// What only TensorFlow Serving can serve is refused with a sentence that says so, be it a sub-model's name or what lies in
// its folder.
func TestWhatTensorFlowServes(t *testing.T) {
	const mend = "have TensorFlow Serving serve it"
	for _, name := range []string{"m:dense_0", "m:ps_item_embedding_0", "m:ps_x", "m:free"} {
		if _, _, _, err := splitName(name); err == nil || !strings.Contains(err.Error(), "name it so, or "+mend) {
			t.Errorf("%s: %v", name, err)
		}
	}
	base, empty := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(base, "7"), filepath.Join(empty, "7")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "7", tfgraph.FileName), []byte("a graph"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReads(1<<20, 0)
	for dir, want := range map[string]codes.Code{base: codes.Unimplemented, empty: codes.NotFound} {
		_, entryErr := r.loadEntry(t.Context(), "m", dir, 7, target{})
		_, psErr := r.loadPS(t.Context(), "m", dir, 0, 7, "", target{})
		for _, err := range []error{entryErr, psErr} {
			if err == nil || failed(err).code != want || strings.Contains(err.Error(), mend) != (want == codes.Unimplemented) {
				t.Errorf("%s: %v, want %v", dir, err, want)
			}
		}
	}
}

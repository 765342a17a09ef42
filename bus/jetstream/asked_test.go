package jetstream

import (
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/bus/internal/wire"
	"github.com/monolith-go/monolith/bus/jetstream/internal/asker"
	"github.com/monolith-go/monolith/events"
)

// A request that cannot be signed is not sent; facts are not signed by whoever decides them.
func TestRequestsAreSigned(t *testing.T) {
	of := events.Join("demo", "model", "m")
	for _, tc := range []struct {
		creds   string
		subject events.Subject
		refused bool
		by      bool
	}{
		{"", of.Request(), false, true},
		{filepath.Join(t.TempDir(), "gone"), of.Request(), true, false},
		{filepath.Join(t.TempDir(), "gone"), of, false, false},
	} {
		who, err := asker.New(tc.creds, "")
		if err != nil {
			t.Fatal(err)
		}
		ready := []wire.Ready{{Subject: string(tc.subject)}}
		err = (&Bus{asker: who}).sign(ready)
		if (err != nil) != tc.refused || (ready[0].Header.Asked.By != "") != tc.by {
			t.Errorf("%s with credentials in %q: %+v, %v", tc.subject, tc.creds, ready[0].Header.Asked, err)
		}
	}
}

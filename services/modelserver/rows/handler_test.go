package rows

import (
	"context"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/rowwire"
)

// serving are the versions of shard 0 of the model m.
func serving(versions ...*Shard) Handler {
	return NewHandler(func(model string, shard uint32) []*Shard {
		if model != "m" || shard != 0 {
			return nil
		}
		return versions
	})
}

func TestRowsOfAVersionAndAJob(t *testing.T) {
	newest, old := newPS(t), newPS(t)
	newest.Version, newest.Job = 4, "j"
	old.Version, old.Job = 3, "i"
	r := serving(newest, old)
	for _, tc := range []struct {
		version int64
		job     string
		want    *Shard
	}{{0, "", newest}, {4, "", newest}, {3, "", old}, {0, "i", old}, {0, "j", newest}, {4, "j", newest}, {3, "j", nil}, {4, "i", nil}, {5, "", nil}, {0, "k", nil}} {
		newest.asked.Store(0)
		old.asked.Store(0)
		res, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Version: tc.version, Job: tc.job})
		switch {
		case tc.want == nil:
			if rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "but 4 of") {
				t.Errorf("version %d of %q: %v, %v", tc.version, tc.job, res, err)
			}
		case err != nil || res.Version != tc.want.Version:
			t.Errorf("version %d of %q: %+v, %v", tc.version, tc.job, res, err)
		}
		named := tc.version != 0 || tc.job != ""
		for _, m := range []*Shard{newest, old} {
			if asked := m.asked.Load() != 0; asked != (named && m == tc.want) {
				t.Errorf("version %d of %q: version %d was asked for: %v", tc.version, tc.job, m.Version, asked)
			}
		}
	}
	if _, err := r.Lookup(context.Background(), &rowwire.LookupRequest{Model: "m", Shard: 1}); rowwire.CodeOf(err) != rowwire.NotFound || !strings.Contains(err.Error(), "m:ps_1 is not served here") {
		t.Errorf("another shard: %v", err)
	}
}

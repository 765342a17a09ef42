package peer

import "testing"

// Only shards' parts of checkpoints are asked for by path.
func TestAskForAPart(t *testing.T) {
	ask := Ask{Dir: "/srv/job", Part: "model.ckpt-12/ps_3"}
	if got, err := askOf(ask.query()); err != nil || got != ask {
		t.Errorf("%+v comes as %+v, %v", ask, got, err)
	}
	for _, part := range []string{"", "model.ckpt-12", "model.ckpt-12/ps_3/x", "model.ckpt-0/ps_0", "model.ckpt-1/ps_01", "model.ckpt-1/entry", "../model.ckpt-1/ps_0", "model.ckpt-1/ps_0\n", "exported_models/ps_0"} {
		if err := CheckPart(part); err == nil {
			t.Errorf("%q passes for a part", part)
		}
	}
	if _, err := askOf(Ask{Part: "model.ckpt-12/ps_3"}.query()); err == nil {
		t.Error("a part of no folder is asked for")
	}
}

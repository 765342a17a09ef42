package agentdata_test

import (
	"testing"

	"github.com/monolith-go/monolith/internal/compat/agentdata"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

func TestDecodeReplicaMeta(t *testing.T) {
	replica := znodedata.ReplicaMeta{Address: "localhost:123", ModelName: "monolith", ServerType: "ps"}
	if got, err := agentdata.DecodeReplicaMeta(replica.Bytes()); err != nil || got != replica {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := agentdata.DecodeReplicaMeta([]byte(`{"address": null, "task": null, "new": 1}`)); err != nil || got != (znodedata.ReplicaMeta{Task: -1, Replica: -1}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{``, `[]`, `{"task": "1"}`} {
		if got, err := agentdata.DecodeReplicaMeta([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, got)
		}
	}
}

// Agents without a number of their own count replicas by 40 bits of a hash.
func TestDecodeNumbersOfFortyBits(t *testing.T) {
	const big = 1099511627775
	r, err := agentdata.DecodeReplicaMeta([]byte(`{"address": "h:1", "stat": 30, "replica": 1099511627775}`))
	if err != nil || r.Replica != big {
		t.Errorf("%+v, %v", r, err)
	}
	if back, err := agentdata.DecodeReplicaMeta(r.Bytes()); err != nil || back != r {
		t.Errorf("%+v comes back as %+v, %v", r, back, err)
	}
}

func TestParsePublish(t *testing.T) {
	if s, r, m, ok := agentdata.ParsePublish("/b/publish/0:00000000007:a:b"); s != 0 || r != 7 || m != "a:b" || !ok {
		t.Error(s, r, m, ok)
	}
	for _, bad := range []string{"", "0:1", "0:1:", "x:1:m", "0:x:m"} {
		if s, r, m, ok := agentdata.ParsePublish(bad); ok {
			t.Errorf("%q is read as %d, %d, %q", bad, s, r, m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("/bzid/publish/0:0:m", []byte(`{"address": ":", "stat": 30, "replica": 2}`))
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		if _, _, model, ok := agentdata.ParsePublish(path); ok && model == "" {
			t.Errorf("%q publishes nothing", path)
		}
		r, err := agentdata.DecodeReplicaMeta(data)
		if err != nil {
			return
		}
		if back, err := agentdata.DecodeReplicaMeta(r.Bytes()); err != nil || back != r {
			t.Errorf("%+v comes back as %+v, %v", r, back, err)
		}
	})
}

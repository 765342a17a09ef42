package agentconf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// at is an environment, and free ports from 9001.
func at(env map[string]string) Environment {
	next := 9000
	return Environment{Getenv: func(key string) string { return env[key] }, FreePort: func() (int, error) { next++; return next, nil }}
}

func deploy(t *testing.T, text string, env map[string]string) *Deployment {
	t.Helper()
	c, err := Read(write(t, "agent.conf", text))
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Deploy(at(env))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPorts(t *testing.T) {
	env := map[string]string{"PORT": "4001", "PORT2": "4002", "PORT3": "4003", "PORT4": "4004", "PORT5": "4005", "PORT6": "4006", "PORT7": "4007", "PORT8": "4008", "PORT9": "4009", "PORT10": "4010"}
	for _, tc := range []struct {
		name, conf string
		env        map[string]string
		want       map[string]Ports
		agent      int
	}{
		{"mixed", "stand_alone_serving true", env, map[string]Ports{Entry: {4003, 4004, 4001}, PS: {4005, 4006, 4007}}, 4002},
		{"mixed with dense", "deploy_type mixed\ndense_alone 1", env, map[string]Ports{Entry: {4003, 4004, 4001}, PS: {4005, 4006, 4007}, Dense: {4008, 4009, 4010}}, 4002},
		{"ps", "deploy_type ps", env, map[string]Ports{PS: {4003, 4004, 4001}}, 4002},
		{"dense", "deploy_type dense\ndense_alone y", env, map[string]Ports{Dense: {4003, 4004, 4001}}, 4002},
		{"second dense", "deploy_type dense\ndense_alone y", map[string]string{"DENSE_SERVICE_IDX": "1", "PORT3": "4003"}, map[string]Ports{Dense: {9001, 9002, 9003}}, 9004},
		{"unified", "deploy_type unified\nagent_version 3\ntfs_port_grpc 1\nagent_port 7", env, map[string]Ports{Unified: {4003, 4004, 4001}}, 7},
		{"of the file", "deploy_type entry\ntfs_entry_port 5001\ntfs_entry_http_port 5002", nil, map[string]Ports{Entry: {5001, 5002, 9001}}, 9002},
	} {
		d := deploy(t, tc.conf, tc.env)
		if diff := cmp.Diff(tc.want, d.Ports); diff != "" || d.AgentPort != tc.agent {
			t.Errorf("%s: agent %d, want %d; ports (-want +got):\n%s", tc.name, d.AgentPort, tc.agent, diff)
		}
	}
}

func TestWhoItIs(t *testing.T) {
	d := deploy(t, "deploy_type ps\nnum_ps 5", map[string]string{
		"MY_POD_NAME": "pod-7", "SHARD_ID": "1", "REPLICA_ID": "3", "MONOLITH_HOST_SHARD_N": "2", "TCE_INTERNAL_IDC": "LQ", "TCE_CLUSTER": "Default", "TCE_PSM": "p.s.m",
	})
	// The first agents draw their number from the pod's name: hex digits 10 to 19 of its MD5.
	if d.Replica != 0x04d65bcb1f {
		t.Errorf("replica %#x", d.Replica)
	}
	if got := d.Shards(); !cmp.Equal(got, []int{1, 3}) || d.IDC != "lq" || d.Cluster != "default" || d.TCE != "Default" || d.PSM != "p.s.m" {
		t.Errorf("shards %v, %s:%s, %s, %s", got, d.IDC, d.Cluster, d.TCE, d.PSM)
	}
	if d := deploy(t, "deploy_type unified\nagent_version 3", map[string]string{"MY_POD_NAME": "pod-7", "REPLICA_ID": "3"}); d.Replica != 3 {
		t.Errorf("replica %d, want the environment's", d.Replica)
	}
	if d := deploy(t, "deploy_type ps", nil); d.Replica != -1 || d.Shard != -1 || d.Shards() != nil {
		t.Errorf("without a pod's name: replica %d, shard %d, shards %v", d.Replica, d.Shard, d.Shards())
	}
}

func TestDeployRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"bzid b":                             "there is no deploy_type",
		"deploy_type x":                      `deploy_type is "x"`,
		"deploy_type dense":                  "without dense_alone",
		"deploy_type ps\nnum_shard 2":        "num_shard is 2, MONOLITH_HOST_SHARD_N says 1",
		"deploy_type unified":                "unified goes with version 3",
		"deploy_type entry\nagent_version 3": "unified goes with version 3",
	} {
		c, err := Read(write(t, "agent.conf", text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Deploy(at(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	c := Default()
	c.DeployType = PS
	if _, err := c.Deploy(at(map[string]string{"SHARD_ID": "one"})); err == nil || !strings.Contains(err.Error(), `SHARD_ID is "one"`) {
		t.Errorf("a shard that is no number: %v", err)
	}
}

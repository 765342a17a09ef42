package agentconf

import "testing"

func TestInMLService(t *testing.T) {
	pod := map[string]string{"MLP_SHARD_ID": "2", "MLP_SHARD_NUM": "3", "MLP_IDC": "here", "MLP_POD_NAME": "movies-ps-2-x", "MLP_HOST_IP": "10.0.0.1",
		"MLP_SERVICE_NAME": "movies", "MLP_ROLE_NAME": "PS"}
	with := func(more map[string]string) func(string) string {
		return InMLService(func(name string) string {
			if v, ok := more[name]; ok {
				return v
			}
			return pod[name]
		})
	}
	for _, c := range []struct {
		more       map[string]string
		name, want string
	}{
		{nil, "SHARD_ID", "1"},
		{nil, "MONOLITH_HOST_SHARD_N", "3"},
		{nil, "TCE_INTERNAL_IDC", "here"},
		{nil, "MY_POD_NAME", "movies-ps-2-x"},
		{nil, "MY_HOST_IP", "10.0.0.1"},
		{nil, "TCE_PSM", "data.tob.monolith_serving_ps-movies"},
		{nil, "MLP_SHARD_ID", "2"},
		{nil, "PORT", ""},
		{map[string]string{"MLP_ROLE_NAME": "Entry"}, "TCE_PSM", "data.tob.monolith_serving_en-movies"},
		{map[string]string{"MLP_ROLE_NAME": "DenseNN"}, "TCE_PSM", "data.tob.monolith_serving_de-movies"},
		{map[string]string{"MLP_ROLE_NAME": "other"}, "TCE_PSM", ""},
		{map[string]string{"TCE_PSM": "own"}, "TCE_PSM", "own"},
		{map[string]string{"SHARD_ID": "7"}, "SHARD_ID", "7"},
		{map[string]string{"MLP_SHARD_ID": ""}, "SHARD_ID", ""},
		{map[string]string{"MLP_SHARD_ID": "0"}, "SHARD_ID", ""},
		{map[string]string{"MLP_SHARD_ID": "x"}, "SHARD_ID", ""},
	} {
		if got := with(c.more)(c.name); got != c.want {
			t.Errorf("with %v, %s is %q, want %q", c.more, c.name, got, c.want)
		}
	}
}

package agentconf

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/servables/tensorflow_go_proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

const binary = "/opt/tiger/monolith_serving/bin/tensorflow_model_server"

var pod = map[string]string{"PORT": "4001", "PORT2": "4002", "PORT3": "4003", "PORT4": "4004", "SHARD_ID": "0"}

// The lines that the original starts its servers by.
func TestCommandLines(t *testing.T) {
	named := map[string]string{"PORT": "4001", "PORT3": "4003", "PORT4": "4004", "PORT5": "4005", "PORT6": "4006", "PORT7": "4007", "TCE_PSM": "p.s", "TCE_CLUSTER": "Cl"}
	for _, tc := range []struct {
		name, conf string
		env        map[string]string
		start      Start
		want       string
	}{
		{"a shard", "deploy_type ps", pod, Start{Kind: PS, Original: true},
			"--model_config_file=/tmp/m --archon_rpc_psm= --archon_rpc_cluster= --metrics_namespace_prefix= --log_conf=../conf/log4j.properties --port=4003 --rest_api_port=4004 --archon_port=4001 --file_system_poll_wait_seconds=0 --platform_config_file=/opt/tiger/monolith_serving/conf/platform_config_file.cfg"},
		{"a shard of any binary", "deploy_type ps", pod, Start{Kind: PS},
			"--model_config_file=/tmp/m --port=4003 --rest_api_port=4004 --file_system_poll_wait_seconds=0 --platform_config_file=/opt/tiger/monolith_serving/conf/platform_config_file.cfg"},
		{"an entry", "deploy_type entry\nfetch_ps_long_conn_enable no\nfetch_ps_timeout_ms 50\nnum_load_threads 2\nallow_growth false\nversion v\nper_process_gpu_memory_fraction 0.5\nplatform_config_file /p", pod, Start{Kind: Entry, Original: true},
			"--model_config_file=/tmp/m --archon_rpc_psm= --archon_rpc_cluster= --metrics_namespace_prefix= --log_conf=../conf/log4j.properties --port=4003 --rest_api_port=4004 --archon_port=4001 " +
				"--archon_entry_to_ps_rpc_timeout=50 --archon_entry_to_ps_long_conn_num=100 --archon_entry_to_ps_rpc_retry=2 --archon_async_dispatcher_threads=30 --archon_entry_to_ps_long_conn_enable=false " +
				"--num_load_threads=2 --platform_config_file=/p --per_process_gpu_memory_fraction=0.5 --allow_growth=false --version=v"},
		{"the same of any binary", "deploy_type entry\nfetch_ps_long_conn_enable no\nallow_growth false\nversion v\nfile_system_poll_wait_seconds 7\nplatform_config_file /p", pod, Start{Kind: Entry},
			"--model_config_file=/tmp/m --port=4003 --rest_api_port=4004 --file_system_poll_wait_seconds=7 --platform_config_file=/p"},
		{"the shard of a mixed agent", "deploy_type mixed\nplatform_config_file /p", named, Start{Kind: PS, Original: true},
			"--model_config_file=/tmp/m --archon_rpc_psm=p.s_ps --archon_rpc_cluster=Cl --metrics_namespace_prefix=p.s_ps --log_conf=../conf/log4j_ps.properties --port=4005 --rest_api_port=4006 --archon_port=4007 --file_system_poll_wait_seconds=0 --platform_config_file=/p"},
		{"a dense server", "deploy_type dense\ndense_alone 1\nenable_batching 1\nagent_version 2\nplatform_config_file /p", pod, Start{Kind: Dense, Original: true},
			"--model_config_file=/tmp/m --archon_rpc_psm= --archon_rpc_cluster= --metrics_namespace_prefix= --log_conf=../conf/log4j.properties --port=4003 --rest_api_port=4004 --archon_port=4001 --enable_batching=true " +
				"--archon_entry_to_ps_rpc_timeout=200 --archon_entry_to_ps_long_conn_num=100 --archon_entry_to_ps_rpc_retry=2 --archon_async_dispatcher_threads=30 --model_config_file_poll_wait_seconds=0 --enable_batching=true --platform_config_file=/p"},
		{"a unified agent", "deploy_type unified\nagent_version 3\nplatform_config_file /p", pod, Start{Kind: Unified, Original: true, Archon: true},
			"--model_config_file=/tmp/m --port=4003 --rest_api_port=4004 --model_config_file_poll_wait_seconds=60 --archon_port=4001 --archon_rpc_psm= --archon_rpc_cluster= --metrics_namespace_prefix= " +
				"--archon_entry_to_ps_rpc_timeout=200 --conf_file=conf/service.conf --log_conf=conf/log4j.properties --platform_config_file=/p"},
		{"a unified agent of any binary", "deploy_type unified\nagent_version 3\nplatform_config_file /p", pod, Start{Kind: Unified},
			"--model_config_file=/tmp/m --port=4003 --rest_api_port=4004 --model_config_file_poll_wait_seconds=60 --platform_config_file=/p"},
	} {
		tc.start.Binary, tc.start.ModelConfig = binary, "/tmp/m"
		got := deploy(t, tc.conf, tc.env).Command(tc.start)
		if diff := cmp.Diff(strings.Fields(binary+" "+tc.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// The platform's file is what protobuf reads as it.
func TestPlatform(t *testing.T) {
	for _, tc := range []struct {
		conf            string
		env             map[string]string
		intra, inter    int32
		batch           int64
		warmup, growing bool
	}{
		{"deploy_type ps", nil, 16, 16, 0, true, true},
		{"deploy_type ps\ntensorflow_intra_op_parallelism 3\nenable_model_warmup no\nallow_growth 0", map[string]string{"MY_CPU_LIMIT": "8"}, 3, 8, 0, false, false},
		{"deploy_type dense\ndense_alone 1\nenable_batching 1", nil, 16, 16, 1024, true, true},
	} {
		d := deploy(t, tc.conf, tc.env)
		var m config_go_proto.PlatformConfigMap
		if err := prototext.Unmarshal([]byte(d.Platform(false)), &m); err != nil {
			t.Fatalf("%v\n%s", err, d.Platform(false))
		}
		var adapter tensorflow_go_proto.SavedModelBundleSourceAdapterConfig
		if err := m.GetPlatformConfigs()["tensorflow"].GetSourceAdapterConfig().UnmarshalTo(&adapter); err != nil {
			t.Fatal(err)
		}
		c := adapter.GetLegacyConfig()
		s := c.GetSessionConfig()
		if s.GetIntraOpParallelismThreads() != tc.intra || s.GetInterOpParallelismThreads() != tc.inter || !s.GetAllowSoftPlacement() || s.GetGpuOptions().GetAllowGrowth() != tc.growing ||
			c.GetEnableModelWarmup() != tc.warmup || c.GetBatchingParameters().GetMaxBatchSize().GetValue() != tc.batch {
			t.Errorf("%s: %v", tc.conf, c)
		}
		if strings.Contains(d.Platform(true), "support_diff_dim_size_inputs: true") != (tc.batch > 0) {
			t.Errorf("%s: the original's file is\n%s", tc.conf, d.Platform(true))
		}
	}
}

func TestModels(t *testing.T) {
	const rough = "\nrough_sort_model_name r\nrough_sort_model_local_path /l\nrough_sort_model_loaded_server "
	two := map[string]string{"SHARD_ID": "1", "MONOLITH_HOST_SHARD_N": "2"}
	latest := tfserving.Policy{Latest: 1}
	for _, tc := range []struct {
		conf, kind string
		want       []tfserving.Model
	}{
		{"deploy_type ps\nnum_ps 4", PS, []tfserving.Model{{Name: "ps_1", BasePath: "/m/ps_1", Policy: latest}, {Name: "ps_3", BasePath: "/m/ps_3", Policy: latest}}},
		{"deploy_type ps\nnum_ps 2\nversion_policy all" + rough + "ps", PS, []tfserving.Model{{Name: "ps_1", BasePath: "/m/ps_1", Policy: tfserving.Policy{All: true}}, {Name: "ps_item_embedding_1", BasePath: "/l/r/ps_item_embedding_1", Policy: tfserving.Policy{All: true}}}},
		{"deploy_type entry\nversion_policy specific\nversion_data 9", Entry, []tfserving.Model{{Name: "entry", BasePath: "/m/entry", Policy: tfserving.Policy{Versions: []int64{9}}}}},
		{"deploy_type entry\nversion_policy latest_once\nversion_data 2" + rough + "entry", Entry, []tfserving.Model{{Name: "entry", BasePath: "/m/entry", Policy: tfserving.Policy{Latest: 2}}, {Name: "entry_item_embedding_0", BasePath: "/l/r/entry_item_embedding_0", Policy: tfserving.Policy{Latest: 2}}}},
		{"deploy_type entry\nrough_sort_resource_constrained 1", Entry, []tfserving.Model{{Name: "entry", BasePath: "/m/entry", Policy: latest}, {Name: "entry_item_embedding_0", BasePath: "/m/entry_item_embedding_0", Policy: latest}}},
		{"deploy_type dense\ndense_alone 1" + rough + "dense", Dense, []tfserving.Model{{Name: "dense_0", BasePath: "/m/dense_0", Policy: latest}, {Name: "dense_item_embedding_0", BasePath: "/l/r/dense_item_embedding_0", Policy: latest}}},
	} {
		d := deploy(t, tc.conf+"\nbase_path /m", two)
		got, err := d.Models(tc.kind)
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tc.conf, err, diff)
		}
		text, err := d.ModelConfig(tc.kind)
		var c config_go_proto.ModelServerConfig
		if err != nil || prototext.Unmarshal([]byte(text), &c) != nil {
			t.Errorf("%s: %v\n%s", tc.conf, err, text)
		}
		if back, err := tfserving.Models(&c); err != nil || !cmp.Equal(back, tc.want) {
			t.Errorf("%s reads as %v, %v", text, back, err)
		}
	}
	for conf, want := range map[string]bool{
		"deploy_type ps" + rough + "ps":                                                                        false, // it lies there
		"deploy_type ps" + rough + "ps\nrough_sort_model_p2p_path /p":                                          true,
		"deploy_type ps" + rough + "entry\nrough_sort_model_p2p_path /p":                                       false, // another agent's
		"stand_alone_serving 1" + rough + "entry\nrough_sort_model_p2p_path /p":                                true,
		"deploy_type entry\nrough_sort_resource_constrained 1" + rough + "entry\nrough_sort_model_p2p_path /p": false, // it is among the exports
		"deploy_type unified\nagent_version 3" + rough + "entry\nrough_sort_model_p2p_path /p":                 true,  // a layout may name it
		"deploy_type entry\nrough_sort_model_p2p_path /p":                                                      false,
	} {
		if got := deploy(t, conf, pod).BringsRoughSort(); got != want {
			t.Errorf("%s: a model is brought: %v", conf, got)
		}
	}
	if text, err := deploy(t, "deploy_type unified\nagent_version 3", pod).ModelConfig(Unified); err != nil || text != "model_config_list {}\n" {
		t.Errorf("before a layout: %q, %v", text, err)
	}
	if _, err := deploy(t, "deploy_type entry\nversion_policy x", pod).ModelConfig(Entry); err == nil || !strings.Contains(err.Error(), "x is not allowed!") {
		t.Errorf("an unknown policy: %v", err)
	}
}

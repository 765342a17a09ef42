package modelserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The platform's file stands in place of the flags of batching and warm-up, and what it says of sessions
// does nothing.
func TestPlatformConfigFile(t *testing.T) {
	const file = "platform_configs { key: %q value { source_adapter_config { [type.googleapis.com/tensorflow.serving.%s] { legacy_config { %s } } } } }"
	const bundle = "SavedModelBundleSourceAdapterConfig"
	path := filepath.Join(t.TempDir(), "platform")
	for _, tc := range []struct {
		text             string
		batching, warmUp bool
		most             int64
		iterations       int
		idle             string
		wrong            string
	}{
		{text: fmt.Sprintf(file, "tensorflow", bundle, "batching_parameters { max_batch_size { value: 7 } } enable_model_warmup: true"), batching: true, warmUp: true, most: 7, idle: "[]"},
		{text: fmt.Sprintf(file, "tensorflow", bundle, "session_config { intra_op_parallelism_threads: 4 }"), idle: "[session_config of platform-config-file]"},
		{text: fmt.Sprintf(file, "tensorflow", bundle, "enable_model_warmup: true model_warmup_options { num_request_iterations { value: 4 } }"), warmUp: true, iterations: 4, idle: "[]"},
		{text: fmt.Sprintf(file, "tensorflow", bundle, "model_warmup_options { num_request_iterations { value: -1 } }"), wrong: "num_request_iterations is -1; want 0 to 1000"},
		{text: fmt.Sprintf(file, "other", bundle, ""), wrong: `no source_adapter_config of the platform "tensorflow"`},
		{text: "platform_configs { key: \"tensorflow\" value { source_adapter_config { type_url: \"x/y\" } } }", wrong: "needs a SavedModelBundleSourceAdapterConfig"},
		{text: "platform_configs {", wrong: "is no PlatformConfigMap in text form"},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		c := Config{PlatformConfigFile: path, EnableBatching: !tc.batching, EnableModelWarmUp: !tc.warmUp, BatchingParametersFile: "f"}
		p, err := c.takePlatform()
		if tc.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wrong) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %q", tc.text, err, tc.wrong)
			}
			continue
		}
		if err != nil || c.EnableBatching != tc.batching || c.EnableModelWarmUp != tc.warmUp || c.BatchingParametersFile != "" || p.GetMaxBatchSize().GetValue() != tc.most || fmt.Sprint(c.idle) != tc.idle || c.WarmUpIterations != tc.iterations {
			t.Errorf("%s: %v, %+v, %v", tc.text, p, c, err)
		}
		if b, err := newBatcher(c, p, nil); err != nil || (b != nil) != tc.batching {
			t.Errorf("%s: %v, %v", tc.text, b, err)
		}
	}
}

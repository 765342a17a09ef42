package modelserver

import (
	"cmp"
	"fmt"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/servables/tensorflow_go_proto"
)

// platform is the platform that all models are of.
const platform = "tensorflow"

// takePlatform reads a PlatformConfigMap. As in TensorFlow Serving it stands in place of the flags of
// batching and warm-up; what it says of sessions is about TensorFlow's own runtime.
func (c *Config) takePlatform() (*tensorflow_go_proto.BatchingParameters, error) {
	const flag = "--platform-config-file"
	if c.PlatformConfigFile == "" {
		return nil, nil
	}
	file := &config_go_proto.PlatformConfigMap{}
	if _, err := readText(flag, c.PlatformConfigFile, file); err != nil {
		return nil, err
	}
	adapter := file.GetPlatformConfigs()[platform].GetSourceAdapterConfig()
	if adapter == nil {
		return nil, fmt.Errorf("%s: %s has no source_adapter_config of the platform %q, which all models are of", flag, c.PlatformConfigFile, platform)
	}
	bundle := &tensorflow_go_proto.SavedModelBundleSourceAdapterConfig{}
	if err := adapter.UnmarshalTo(bundle); err != nil {
		return nil, fmt.Errorf("%s: %s: the platform %q needs a SavedModelBundleSourceAdapterConfig: %w", flag, c.PlatformConfigFile, platform, err)
	}
	session := bundle.GetLegacyConfig()
	if session.GetSessionConfig() != nil {
		c.idle = append(c.idle, "session_config of platform-config-file")
	}
	c.EnableModelWarmUp = session.GetEnableModelWarmup()
	if n := session.GetModelWarmupOptions().GetNumRequestIterations(); n != nil {
		if n.GetValue() < 0 || n.GetValue() > maxWarmUpIterations {
			return nil, fmt.Errorf("%s: %s: num_request_iterations is %d; want 0 to %d", flag, c.PlatformConfigFile, n.GetValue(), maxWarmUpIterations)
		}
		c.WarmUpIterations = cmp.Or(int(n.GetValue()), 1)
	}
	c.EnableBatching, c.BatchingParametersFile = session.GetBatchingParameters() != nil, ""
	return session.GetBatchingParameters(), nil
}

package tfserving

import (
	"fmt"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/types/known/wrapperspb"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

// MaxModels and MaxName bound a configuration that is accepted.
const (
	MaxModels = 4096
	MaxName   = 1024
)

// Policy says which versions below a base path are served: the Versions, or else the
// Latest newest ones (1 when 0), or all.
type Policy struct {
	Versions []int64
	Latest   int
	All      bool
}

// Model is one entry of a model server's configuration.
type Model struct {
	Name     string // {model}:{sub-model}
	BasePath string // the versions' directories lie below
	Policy   Policy
	Labels   map[string]int64 // of versions, by which requests may name them
}

// Config builds the configuration for HandleReloadConfigRequest, in the order given.
func Config(models ...Model) *config_go_proto.ModelServerConfig {
	list := &config_go_proto.ModelConfigList{}
	for _, m := range models {
		list.Config = append(list.Config, &config_go_proto.ModelConfig{
			Name:               m.Name,
			BasePath:           m.BasePath,
			ModelPlatform:      "tensorflow",
			ModelVersionPolicy: m.Policy.proto(),
			VersionLabels:      m.Labels,
		})
	}
	return &config_go_proto.ModelServerConfig{Config: &config_go_proto.ModelServerConfig_ModelConfigList{ModelConfigList: list}}
}

type policy = config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy

func (p Policy) proto() *policy {
	switch {
	case len(p.Versions) > 0:
		return &policy{PolicyChoice: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific_{
			Specific: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific{Versions: p.Versions}}}
	case p.All:
		return &policy{PolicyChoice: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_All_{
			All: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_All{}}}
	}
	return &policy{PolicyChoice: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest_{
		Latest: &config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest{NumVersions: uint32(max(p.Latest, 1))}}}
}

// Models reads a configuration back; what is refused is refused whole, with a sentence
// that says which entry to mend.
func Models(c *config_go_proto.ModelServerConfig) ([]Model, error) {
	list, ok := c.GetConfig().(*config_go_proto.ModelServerConfig_ModelConfigList)
	if !ok {
		return nil, refusal("ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently supported")
	}
	configs := list.ModelConfigList.GetConfig()
	if len(configs) > MaxModels {
		return nil, fmt.Errorf("the configuration lists %d models, at most %d are taken", len(configs), MaxModels)
	}
	seen := make(map[string]bool, len(configs))
	models := make([]Model, 0, len(configs))
	for i, m := range configs {
		switch {
		case m.GetName() == "" || len(m.GetName()) > MaxName:
			return nil, fmt.Errorf("model %d of the configuration needs a name of 1 to %d bytes", i, MaxName)
		case seen[m.GetName()]:
			return nil, fmt.Errorf("illegal to list model %s multiple times in config list", m.GetName())
		case m.GetBasePath() == "":
			return nil, fmt.Errorf("model %s needs a base_path", m.GetName())
		case m.GetModelPlatform() != "" && m.GetModelPlatform() != "tensorflow":
			return nil, fmt.Errorf("model %s has platform %q, only tensorflow is served", m.GetName(), m.GetModelPlatform())
		}
		seen[m.GetName()] = true
		p := Policy{Latest: 1}
		switch choice := m.GetModelVersionPolicy().GetPolicyChoice().(type) {
		case *config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Specific_:
			p = Policy{Versions: choice.Specific.GetVersions()}
			if len(p.Versions) == 0 || len(p.Versions) > MaxModels {
				return nil, fmt.Errorf("model %s has a specific version policy with %d versions; list 1 to %d", m.GetName(), len(p.Versions), MaxModels)
			}
		case *config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_All_:
			p = Policy{All: true}
		case *config_go_proto.FileSystemStoragePathSourceConfig_ServableVersionPolicy_Latest_:
			p = Policy{Latest: max(1, int(min(choice.Latest.GetNumVersions(), MaxModels)))}
		}
		if err := labels(m); err != nil {
			return nil, err
		}
		models = append(models, Model{Name: m.GetName(), BasePath: filepath.Clean(m.GetBasePath()), Policy: p, Labels: m.GetVersionLabels()})
	}
	return models, nil
}

// labels refuses labels that no request could name, and too many.
func labels(m *config_go_proto.ModelConfig) error {
	if n := len(m.GetVersionLabels()); n > MaxModels {
		return fmt.Errorf("model %s has %d version_labels, at most %d are taken", m.GetName(), n, MaxModels)
	}
	for label, version := range m.GetVersionLabels() {
		switch {
		case label == "" || len(label) > MaxName || strings.Contains(label, "/"):
			return fmt.Errorf("model %s has the version label %q; name 1 to %d bytes without a slash", m.GetName(), label, MaxName)
		case version < 1:
			return fmt.Errorf("version label %s of model %s means version %d; versions begin with 1", label, m.GetName(), version)
		}
	}
	return nil
}

// Spec names a servable; version 0 means the newest that is served.
func Spec(name string, version int64) *apis.ModelSpec {
	s := &apis.ModelSpec{Name: name}
	if version > 0 {
		s.VersionChoice = &apis.ModelSpec_Version{Version: wrapperspb.Int64(version)}
	}
	return s
}

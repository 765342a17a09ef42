package view

import (
	"strings"

	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// DeployConfigOf is the payload that a declaration's config makes.
func DeployConfigOf(c *layout.DeployConfig) znodedata.SavedModelDeployConfig {
	return znodedata.SavedModelDeployConfig{ModelBasePath: c.GetModelBasePath(), VersionPolicy: c.GetVersionPolicy()}
}

// ServiceInfoOf is the payload that a container's report makes.
func ServiceInfoOf(c *container.Container) znodedata.ContainerServiceInfo {
	return znodedata.ContainerServiceInfo{
		GRPC: c.GetGrpcAddress(), HTTP: c.GetHttpAddress(), Archon: c.GetArchonAddress(), Agent: c.GetAgentAddress(),
		IDC: c.GetIdc(), DebugInfo: znodedata.DebugInfo(c.GetLayoutPath(), c.GetLayoutFilters()),
	}
}

// ContainerNode is {cluster}:{ctx_id}, the last step of /{bzid}/container_service/....
// cluster is {psm};{idc};{cluster}, where agents write unknown and None for what is not
// set. Readers split these names at colons, so one inside a step is escaped, as in URLs;
// so is a slash, which would end the step.
func ContainerNode(c *container.Container) string {
	or := func(s, absent string) string {
		if s == "" {
			return absent
		}
		return step.Replace(s)
	}
	return or(c.GetPsm(), "unknown") + ";" + or(c.GetIdc(), "None") + ";" + or(c.GetCluster(), "None") + ":" + step.Replace(c.GetId())
}

var step = strings.NewReplacer("%", "%25", ":", "%3A", "/", "%2F")

package replicaregistry

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/services/internal/role"
)

// syncTarget is a replica that takes parameters.
type syncTarget struct {
	Address string `json:"address"`
	Replica int32  `json:"replica"`
	IDC     string `json:"idc,omitempty"`
	Cluster string `json:"cluster,omitempty"`
}

// handleTargets lists where parameters of one sub-model are to be sent: every replica
// that takes traffic and has an address, by address.
func (s *Server) handleTargets(_ context.Context, payload []byte) ([]byte, error) {
	ask := struct {
		Model      string `json:"model"`
		ServerType string `json:"serverType"`
		Task       int32  `json:"task"`
	}{ServerType: "ps"}
	const example = `{"model":"movies","serverType":"ps","task":0}`
	if err := role.DecodeJSON(payload, &ask, example); err != nil {
		return nil, err
	}
	if ask.Model == "" {
		return nil, bus.Refuse(bus.CodeInvalid, "model must be given: send a body like %s", example)
	}
	out := struct {
		Targets []syncTarget `json:"targets"`
	}{[]syncTarget{}}
	s.fleet.Read(func(f fleet.State) {
		found := f.Targets(ask.Model, ask.ServerType, ask.Task, fleet.IPv4)
		for _, address := range slices.Sorted(maps.Keys(found)) {
			t := found[address]
			out.Targets = append(out.Targets, syncTarget{address, t.Replica, t.IDC, t.Cluster})
		}
	})
	return json.Marshal(out)
}

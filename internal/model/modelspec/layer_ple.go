package modelspec

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// ple is levels of experts. On each a task mixes its own and the shared experts by a gate of what it had below;
// but for the last level, what is shared mixes all experts likewise. The lowest level's tasks all have the
// inputs side by side.
func (n *network) ple(m *model.Ple, in []graph.ID) ([]graph.ID, error) {
	if err := fits("levels", m.GetLevels(), 1, MaxLayers); err != nil {
		return nil, err
	}
	if err := fits("tasks", m.GetTasks(), 1, MaxTasks); err != nil {
		return nil, err
	}
	if err := fits("experts of a task", m.GetExperts(), 1, MaxExperts); err != nil {
		return nil, err
	}
	if err := fits("shared experts", m.GetShared(), 1, MaxExperts); err != nil {
		return nil, err
	}
	if all := uint64(m.GetLevels()) * (uint64(m.GetTasks())*uint64(m.GetExperts()) + uint64(m.GetShared())); all > MaxExperts {
		return nil, fmt.Errorf("it has %d experts on all levels: %d are allowed", all, MaxExperts)
	}
	shared := n.joined(in)
	tasks := slices.Repeat([]graph.ID{shared}, int(m.GetTasks()))
	for level := range int(m.GetLevels()) {
		var err error
		if tasks, shared, err = n.level(m, level, tasks, shared); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// level is one level of tasks and what they share; behind the last level nothing is shared.
func (n *network) level(m *model.Ple, level int, tasks []graph.ID, shared graph.ID) (up []graph.ID, common graph.ID, err error) {
	prefix := fmt.Sprintf("%d/", level)
	ours, err := n.experts(prefix+"shared/", int(m.GetShared()), m.GetUnits(), shared)
	if err != nil {
		return nil, graph.None, err
	}
	var all []graph.ID
	for t, x := range tasks {
		task := fmt.Sprintf("%stask_%d/", prefix, t)
		own, err := n.experts(task, int(m.GetExperts()), m.GetUnits(), x)
		if err != nil {
			return nil, graph.None, err
		}
		y, err := n.gated(task+"gate", x, slices.Concat(own, ours))
		if err != nil {
			return nil, graph.None, err
		}
		up, all = append(up, y), append(all, own...)
	}
	if level == int(m.GetLevels())-1 {
		return up, graph.None, nil
	}
	common, err = n.gated(prefix+"shared/gate", shared, append(all, ours...))
	return up, common, err
}

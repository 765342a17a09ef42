package agentdata

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

const available = 30 // of ReplicaMeta.Stat

// ServicePath is where a replica stands.
func (m *Mirror) ServicePath(r znodedata.ReplicaMeta) string {
	return m.Service() + "/" + r.ModelName + "/" + r.ServerType + ":" + strconv.Itoa(int(r.Task)) + "/" + strconv.Itoa(int(r.Replica))
}

// LocalReplicaPaths are the cached replicas of this process: its host's, under its own
// replica number.
func (m *Mirror) LocalReplicaPaths() []string {
	var out []string
	for _, path := range m.under(m.Service()) {
		r, err := DecodeReplicaMeta(m.data[path])
		if err != nil || int64(r.Replica) != m.self.Replica {
			continue
		}
		if i := strings.LastIndexByte(r.Address, ':'); i >= 0 && r.Address[:i] == m.self.Host {
			out = append(out, path)
		}
	}
	return out
}

// UpdateService is what makes replicas all that this process serves: first those are
// deleted that it serves no longer, then those are written that are new or different.
func (m *Mirror) UpdateService(replicas []znodedata.ReplicaMeta) []Write {
	var out []Write
	want := map[string]bool{}
	for _, r := range replicas {
		want[m.ServicePath(r)] = true
	}
	for _, path := range m.LocalReplicaPaths() {
		if !want[path] {
			out = append(out, Write{Path: path, Delete: true})
		}
	}
	for _, r := range replicas {
		path, data := m.ServicePath(r), r.Bytes()
		if old, ok := m.data[path]; !ok || !bytes.Equal(old, data) {
			out = append(out, Write{Path: path, Data: data, Ephemeral: true})
		}
	}
	return out
}

// replica is a cached service node that takes traffic.
type replica struct {
	model, serverType string
	task, number      int64
	meta              znodedata.ReplicaMeta
}

// answering are the replicas that are AVAILABLE, by model, type, task and number. Their
// place in the tree says what they are: what the first agents write leaves it out.
func (m *Mirror) answering() []replica {
	var out []replica
	for _, path := range m.under(m.Service()) {
		steps := strings.Split(strings.TrimPrefix(path, m.Service()+"/"), "/")
		if len(steps) < 3 {
			continue
		}
		kind, digits, _ := strings.Cut(steps[len(steps)-2], ":")
		task, ok1 := integer(digits)
		number, ok2 := integer(steps[len(steps)-1])
		meta, err := DecodeReplicaMeta(m.data[path])
		if err != nil || !ok1 || !ok2 || meta.Stat != available {
			continue
		}
		out = append(out, replica{steps[0], kind, task, number, meta})
	}
	slices.SortStableFunc(out, func(a, b replica) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.serverType, b.serverType), cmp.Compare(a.task, b.task), cmp.Compare(a.number, b.number))
	})
	return out
}

// AllReplicas are the available replicas of a server type, by {model}:{type}:{task}.
func (m *Mirror) AllReplicas(serverType string) map[string][]znodedata.ReplicaMeta {
	out := map[string][]znodedata.ReplicaMeta{}
	for _, r := range m.answering() {
		if r.serverType == serverType {
			key := r.model + ":" + r.serverType + ":" + strconv.FormatInt(r.task, 10)
			out[key] = append(out[key], r.meta)
		}
	}
	return out
}

// ModelReplicas are the available replicas of one model and server type, by {model}:{task}.
func (m *Mirror) ModelReplicas(model, serverType string) map[string][]znodedata.ReplicaMeta {
	out := map[string][]znodedata.ReplicaMeta{}
	for _, r := range m.answering() {
		if r.model == model && r.serverType == serverType {
			key := r.model + ":" + strconv.FormatInt(r.task, 10)
			out[key] = append(out[key], r.meta)
		}
	}
	return out
}

// TaskReplicas are the available replicas of one task.
func (m *Mirror) TaskReplicas(model, serverType string, task int64) []znodedata.ReplicaMeta {
	var out []znodedata.ReplicaMeta
	for _, r := range m.answering() {
		if r.model == model && r.serverType == serverType && r.task == task {
			out = append(out, r.meta)
		}
	}
	return out
}

// Replica is one replica of a task, if it is available.
func (m *Mirror) Replica(model, serverType string, task, number int64) (znodedata.ReplicaMeta, bool) {
	for _, r := range m.answering() {
		if r.model == model && r.serverType == serverType && r.task == task && r.number == number {
			return r.meta, true
		}
	}
	return znodedata.ReplicaMeta{}, false
}

// Address chooses where to reach a replica, as the original does: the archon or the gRPC
// address, of the family preferred, else of the other. Wildcards count as missing; ""
// where nothing is left.
func Address(r znodedata.ReplicaMeta, archon, ipv6 bool) string {
	four, six := r.Address, r.AddressIPv6
	if archon {
		four, six = r.ArchonAddress, r.ArchonAddressIPv6
	}
	if strings.HasPrefix(four, "0.0.0.0") {
		four = ""
	}
	if strings.HasPrefix(six, "[::]") {
		six = ""
	}
	if ipv6 {
		return cmp.Or(six, four)
	}
	return cmp.Or(four, six)
}

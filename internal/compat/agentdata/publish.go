package agentdata

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// Write is a change that the original makes to the tree: delete the node, or set its
// data where it is there and create it, with its parents, where it is not.
type Write struct {
	Path      string
	Data      []byte
	Ephemeral bool
	Delete    bool
}

// PublishPath is where a publish node stands.
func (m *Mirror) PublishPath(p znodedata.PublishMeta) string {
	return m.Publish() + "/" + strconv.FormatInt(p.ShardID, 10) + ":" + strconv.FormatInt(p.ReplicaID, 10) + ":" + p.ModelName
}

// PublishLoading is what publishes metas: the nodes that the cache does not hold already.
func (m *Mirror) PublishLoading(metas ...znodedata.PublishMeta) []Write {
	var out []Write
	for _, p := range metas {
		path, data := m.PublishPath(p), p.Bytes()
		if old, ok := m.data[path]; !ok || !bytes.Equal(old, data) {
			out = append(out, Write{Path: path, Data: data})
		}
	}
	return out
}

// ExpectedLoading is what this process should load, by model: of each model whose publish
// nodes are all there, its own node, or else the one with the fewest sub-models, with
// these overrides. A node of its shard that is for no replica in particular is taken
// over whole (that is how a shard grows); of any other only the entry is, and in both
// cases it carries its own numbers then. Nodes that unload are left out.
func (m *Mirror) ExpectedLoading() map[string]znodedata.PublishMeta {
	type seen struct {
		best  znodedata.PublishMeta
		own   bool
		count int
	}
	models := map[string]*seen{}
	for _, path := range m.under(m.Publish()) {
		p, err := DecodePublishMeta(m.data[path])
		_, _, model, ok := ParsePublish(path)
		if err != nil || !ok {
			continue
		}
		s := models[model]
		if s == nil {
			s = &seen{best: p}
			models[model] = s
		}
		s.count++
		switch own := p.ShardID == m.self.Shard && p.ReplicaID == m.self.Replica; {
		case s.own:
		case own:
			s.best, s.own = p, true
		case m.rank(p, s.best) < 0:
			s.best = p
		}
	}
	out := map[string]znodedata.PublishMeta{}
	for model, s := range models {
		p := s.best
		if s.count != p.TotalPublishNum || p.PType != load {
			continue
		}
		if !s.own {
			if p.ShardID != m.self.Shard || p.IsSpec {
				p.SubModels = maps.Clone(p.SubModels)
				maps.DeleteFunc(p.SubModels, func(sub, _ string) bool { return !strings.HasPrefix(sub, "entry") })
			}
			p.ShardID, p.ReplicaID = m.self.Shard, m.self.Replica
		}
		out[model] = p
	}
	return out
}

// rank orders nodes for a process that has none of its own: fewest sub-models first; of
// those with equally many, one that it can take over whole.
func (m *Mirror) rank(a, b znodedata.PublishMeta) int {
	foreign := func(p znodedata.PublishMeta) int {
		if p.ShardID == m.self.Shard && !p.IsSpec {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(len(a.SubModels), len(b.SubModels)), cmp.Compare(foreign(a), foreign(b)))
}

// ReportResource is what makes a process's resources known.
func (m *Mirror) ReportResource(r znodedata.ResourceSpec) Write {
	return Write{
		Path: m.Resource() + "/" + strconv.Itoa(int(r.ShardID)) + ":" + strconv.Itoa(int(r.ReplicaID)),
		Data: r.Append(nil), Ephemeral: true,
	}
}

// Elects says whether a server of this type takes part in the election; entries do not.
func Elects(deployType string) bool { return deployType != "entry" }

// Leader is the winner among the contenders of kazoo's election recipe, the children
// {id}__lock__{sequence} of the election's folder: the one with the lowest sequence. ""
// without any.
func Leader(contenders []string) string {
	type contender struct {
		name     string
		sequence int64
	}
	var all []contender
	for _, name := range contenders {
		for _, mark := range []string{"__lock__", "__rlock__", "-lock-"} {
			if i := strings.LastIndex(name, mark); i >= 0 {
				if n, ok := integer(name[i+len(mark):]); ok {
					all = append(all, contender{name, n})
				}
				break
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b contender) int { return cmp.Compare(a.sequence, b.sequence) }).name
}

package replicaregistry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/projections/fleet"
)

// Prefixes of the original's metrics. Each figure stands below the model's own and below
// the global one.
const (
	modelMetrics  = "data.monolith_serving."
	globalMetrics = "data.monolith_serving.global"
)

// versions remembers since when each replica has served its version: heartbeats and the
// fleet view do not say.
type versions struct {
	Seq uint64             `json:"seq"`
	At  map[string]version `json:"at"` // by replica key, of those that are AVAILABLE
}

type version struct {
	Version int64 `json:"version"`
	MS      int64 `json:"ms"` // time of the fact that made it AVAILABLE
}

var versionsView = follow.View[versions]{
	Name:    "registry-versions",
	Version: 1,
	New:     func() versions { return versions{At: map[string]version{}} },
	Fold:    foldVersions,
}

func foldVersions(s versions, r events.Recorded) versions {
	if r.Seq <= s.Seq {
		return s
	}
	s.Seq = r.Seq
	e, ok := r.Event.(*replica.Event)
	p, err := r.Subject.Parse()
	if !ok || err != nil || p.Request {
		return s
	}
	serves := func(stat replica.State, v int64) {
		switch {
		case stat != replica.State_AVAILABLE:
			delete(s.At, p.Aggregate)
		case s.At[p.Aggregate].Version != v || s.At[p.Aggregate].MS == 0:
			s.At[p.Aggregate] = version{Version: v, MS: r.Time.UnixMilli()}
		}
	}
	switch b := e.GetBody().(type) {
	case *replica.Event_Registered:
		serves(b.Registered.GetReplica().GetStat(), b.Registered.GetReplica().GetVersion())
	case *replica.Event_StateChanged:
		serves(b.StateChanged.GetStat(), b.StateChanged.GetVersion())
	case *replica.Event_Lost:
		delete(s.At, p.Aggregate)
	}
	return s
}

// servingModel exports, under the original's names, what is served and since when:
// serving_model.latest_version, .update_ts (Unix seconds) and .since_last_update
// (seconds), below the model's prefix and the global one.
type servingModel struct {
	prefix   string // "": of each model its own
	now      func() time.Time
	fleet    *follow.Follower[fleet.State]
	versions *follow.Follower[versions]
}

// Describe sends nothing: which names there are depends on which models there are.
func (servingModel) Describe(chan<- *prometheus.Desc) {}

// Collect sends three figures below two prefixes for each replica that takes traffic.
func (m servingModel) Collect(out chan<- prometheus.Metric) {
	since := map[string]version{}
	m.versions.Read(func(v versions) {
		for key, at := range v.At {
			since[key] = at
		}
	})
	now := float64(m.now().UnixMilli()) / 1000
	m.fleet.Read(func(f fleet.State) {
		for _, r := range f.Available("") {
			c := f.Containers[r.GetContainer()].Container.V
			labels := prometheus.Labels{
				"model_name": r.SubModel(), "base_name": r.GetModelName(), "idc": c.GetIdc() + ":" + c.GetCluster(),
				"replica_id": strconv.Itoa(int(r.GetReplica())), "shard_id": strconv.Itoa(int(c.GetShard())),
			}
			own := m.prefix
			if own == "" {
				own = modelMetrics + r.GetModelName()
			}
			figures := map[string]float64{"latest_version": float64(r.GetVersion())}
			if at, ok := since[r.Key()]; ok && at.Version == r.GetVersion() {
				ts := float64(at.MS) / 1000
				figures["update_ts"], figures["since_last_update"] = ts, max(0, now-ts)
			}
			for _, prefix := range []string{own, globalMetrics} {
				for name, v := range figures {
					d := prometheus.NewDesc(prefix+".serving_model."+name, "Version served by a replica, and since when.", nil, labels)
					out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
				}
			}
		}
	})
}

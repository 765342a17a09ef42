// Package registry is the table of all views: typed for services, by name for commands.
package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/internal/fold"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/models"
	"github.com/monolith-go/monolith/projections/plan"
	"github.com/monolith-go/monolith/projections/savedmodels"
	"github.com/monolith-go/monolith/projections/servers"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
)

// The views. Only(bzid) narrows one to a namespace.
var (
	Catalog = follow.View[models.State]{Name: models.Name, Version: models.Version, New: models.New, Fold: models.Fold, Contexts: []string{"model"},
		Failed: fold.Failed(func(s *models.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Plan = follow.View[plan.State]{Name: plan.Name, Version: plan.Version, New: plan.New, Fold: plan.Fold, Contexts: []string{"publish"},
		Failed: fold.Failed(func(s *plan.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Fleet = follow.View[fleet.State]{Name: fleet.Name, Version: fleet.Version, New: fleet.New, Fold: fleet.Fold, Contexts: []string{"container", "replica", "shard"},
		Failed: fold.Failed(func(s *fleet.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Layout = follow.View[savedmodels.State]{Name: savedmodels.Name, Version: savedmodels.Version, New: savedmodels.New, Fold: savedmodels.Fold, Contexts: []string{"layout", "container", "replica"},
		Failed: fold.Failed(func(s *savedmodels.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Lineage = follow.View[lineage.State]{Name: lineage.Name, Version: lineage.Version, New: lineage.New, Fold: lineage.Fold, Contexts: []string{"sync", "training"},
		Failed: fold.Failed(func(s *lineage.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Servers = follow.View[servers.State]{Name: servers.Name, Version: servers.Version, New: servers.New, Fold: servers.Fold, Contexts: []string{"server"},
		Failed: fold.Failed(func(s *servers.State) (*uint64, *fold.Skipped) { return &s.Seq, &s.Skipped })}
	Znode = follow.View[view.State]{Name: view.Name, Version: view.Version, New: view.New, Fold: view.Fold, In: view.FoldIn, Parts: view.Parts, Failed: view.Failed,
		Encode: view.Encode, Decode: view.Decode, Freeze: view.Freeze}
)

// Names are the views in the order in which help texts list them.
func Names() []string {
	names := make([]string, len(table))
	for i, v := range table {
		names[i] = v.name
	}
	return names
}

type replayFunc func(ctx context.Context, log bus.Log, bzid string, until uint64) (canonical []byte, err error)

var table = []struct {
	name   string
	replay replayFunc
}{
	{Catalog.Name, erase(Catalog)},
	{Plan.Name, erase(Plan)},
	{Fleet.Name, erase(Fleet)},
	{Layout.Name, erase(Layout)},
	{Lineage.Name, erase(Lineage)},
	{Servers.Name, erase(Servers)},
	{Znode.Name, erase(Znode)},
}

func erase[S any](v follow.View[S]) replayFunc {
	return func(ctx context.Context, log bus.Log, bzid string, until uint64) ([]byte, error) {
		v := v
		if bzid != "" {
			v = v.Only(bzid)
		}
		s, err := follow.Replay(ctx, log, v, until)
		if err != nil {
			return nil, err
		}
		return follow.Canonical(s)
	}
}

// Replay folds the log up to the event at sequence until (follow.End: the last one stored
// now, 0: none) and returns the state of one namespace, "" for all, as indented JSON, and the
// hash that the roles of that namespace report at that sequence.
func Replay(ctx context.Context, log bus.Log, name, bzid string, until uint64) (stateJSON []byte, hash string, err error) {
	for _, v := range table {
		if v.name != name {
			continue
		}
		canonical, err := v.replay(ctx, log, bzid, until)
		if err != nil {
			return nil, "", err
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, canonical, "", "  "); err != nil {
			return nil, "", fmt.Errorf("view %s: %w", name, err)
		}
		pretty.WriteByte('\n')
		return pretty.Bytes(), follow.HashBytes(canonical), nil
	}
	return nil, "", fmt.Errorf("there is no view %q: choose one of %s", name, strings.Join(Names(), ", "))
}

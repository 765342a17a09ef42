package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/monolith-go/monolith/projections/lineage"
)

// transfers dials the ports at which hosts hand out models and checkpoints.
func (e *examination) transfers(ctx context.Context, jobs lineage.State) {
	dials, ill := 0, false
	for _, host := range slices.Sorted(maps.Keys(jobs.Sources)) {
		addr := jobs.Sources[host].Offered.V.GetAddress()
		if addr == "" || ctx.Err() != nil {
			continue
		}
		dials++
		if err := e.dial(ctx, addr); err != nil {
			ill = true
			e.ill("transfers of "+host, fmt.Sprintf("others are told to fetch models and checkpoints from %s, which cannot be reached from here: %s", addr, sentence(err)),
				"start its model-sync, open the way, or have it told an address that others reach (--transfer-advertise); one that is gone for good is no harm while other hosts have what it had", "copies-between-hosts")
		}
	}
	switch {
	case ill:
	case dials == 0:
		e.well("transfers", "no host hands out models or checkpoints.")
	default:
		e.well("transfers", "all %d ports at which hosts hand out models and checkpoints can be reached from here.", dials)
	}
}

// Package parts has commands bring checkpoints and exports whose parts lie on several machines to one folder.
package parts

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/services/internal/parts"
	"github.com/monolith-go/monolith/services/internal/peer"
)

// Keys are what a command shows to hosts that hand something out.
type Keys struct {
	Own, Shared mtls.Files // of transfers, or else of all ports
	Insecure    bool       // in plain text, from other machines, too
}

// Register binds their flags.
func (k *Keys) Register(fs *pflag.FlagSet) {
	k.Shared.RegisterShared(fs)
	k.Own.RegisterPort(fs, "transfer-tls", "transfers, which both ends show")
	fs.BoolVar(&k.Insecure, "insecure-transfer", k.Insecure, "fetch in plain text, from other machines, too: who answers in a host's place may send another model")
}

// Wanted is a checkpoint of a job and the export that was made with it.
type Wanted = parts.Wanted

// Bring has all parts of what is wanted lie below dir, as they do in the job's folder, from hosts of which l says that they
// hand them out.
func Bring(ctx context.Context, l lineage.State, dir string, keys Keys, log *slog.Logger, wanted ...Wanted) error {
	shown, near, err := peer.Keys(keys.Own, keys.Shared, keys.Insecure)
	if err != nil {
		return err
	}
	client := peer.NewClient(peer.Config{TLS: shown, Near: near, Log: log, // of a command nobody asks for figures
		Fetched: prometheus.NewCounter(prometheus.CounterOpts{Name: "fetched"}),
		Faults:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "faults"}, []string{"reason"})})
	defer client.Close()
	for _, w := range wanted {
		if err := w.Bring(ctx, parts.Fetcher{Dir: dir, Client: client, Log: log}, l); err != nil {
			return err
		}
	}
	return nil
}

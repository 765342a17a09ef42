package doctor

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/transfer"
	"github.com/monolith-go/monolith/projections/lineage"
)

// TestTransfers: a port at which others are told to fetch and that nobody answers is a finding, with its host.
func TestTransfers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	jobs := lineage.State{Sources: map[string]lineage.Source{}}
	found := func() []Finding {
		e := &examination{cfg: Config{Patience: 5 * time.Second}}
		e.transfers(t.Context(), jobs)
		return e.findings
	}
	if got := found(); len(got) != 1 || !got[0].OK || !strings.Contains(got[0].Says, "no host") {
		t.Errorf("of nobody: %+v", got)
	}
	offer := func(host, addr string) {
		jobs.Sources[host] = lineage.Source{Offered: events.JSON[*transfer.SourceOffered]{V: &transfer.SourceOffered{Host: host, Address: addr}}}
	}
	offer("a", ln.Addr().String())
	offer("quiet", "") // hands nothing out any more
	if got := found(); len(got) != 1 || !got[0].OK || !strings.Contains(got[0].Says, "all 1 ports") {
		t.Errorf("of a host that answers: %+v", got)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if got := found(); len(got) != 1 || got[0].OK || got[0].Check != "transfers of a" || !strings.Contains(got[0].Mend, "--transfer-advertise") {
		t.Errorf("of a host that does not: %+v", got)
	}
}

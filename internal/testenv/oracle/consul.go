package oracle

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Consul starts a HashiCorp Consul agent that is its own server and keeps nothing on disk, so that one that
// is restarted has forgotten everything, and returns it; Addr is its HTTP API's. It ends with the test.
func Consul(t testing.TB) *Process {
	t.Helper()
	bin := need(t, "Consul", filepath.Join(Home(t), "bin", "consul"))
	port, server, lan := freePort(t), freePort(t), freePort(t)
	p := start(t, "Consul", port, exec.Command(bin, "agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn", "-disable-host-node-id",
		"-http-port="+strconv.Itoa(port), "-server-port="+strconv.Itoa(server), "-serf-lan-port="+strconv.Itoa(lan), "-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"))
	p.URL = "http://" + p.Addr
	p.AwaitConsul(t)
	return p
}

// AwaitConsul waits until the agent's server leads, without which it answers no query.
func (p *Process) AwaitConsul(t testing.TB) {
	t.Helper()
	wait.For(t, "Consul to lead", func() bool {
		r, err := http.Get(p.URL + "/v1/health/service/consul?passing=true")
		if err != nil {
			return false
		}
		_ = r.Body.Close() // it was only looked at
		return r.StatusCode == http.StatusOK
	})
}

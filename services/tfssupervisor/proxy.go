package tfssupervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/process/child"
)

// The original's proxy and its configuration, where it is installed.
const (
	proxyBinary = agentconf.Home + "/bin/server"
	proxyConf   = agentconf.Home + "/conf/proxy.conf"
)

// proxyLine is the command line of the proxy, nil where none is configured, or there is none.
func (a *Agent) proxyLine() []string {
	binary, conf := cmp.Or(a.cfg.Proxy, proxyBinary), proxyConf
	if _, err := os.Stat(conf); err != nil {
		conf = ""
	}
	var line []string
	for _, s := range a.servers {
		if s.kind == agentconf.Entry {
			line = s.d.Proxy(binary, conf)
		}
	}
	if _, err := os.Stat(binary); line != nil && a.cfg.Proxy == "" && err != nil {
		a.env.Log.Warn("proxy_port is given and the original's proxy is not installed: none is started, and HTTP is answered on the entry's own port; --proxy names another one", "binary", binary)
		return nil
	}
	return line
}

// proxy runs the proxy until ctx ends, or it has.
func (a *Agent) proxy(ctx context.Context, line []string) error {
	cmd := exec.Command(line[0], line[1:]...)
	child.OwnGroup(cmd)
	if a.cfg.Getenv("MLP_POD_NAME") == "" {
		log, err := openLog(filepath.Join(a.servers[0].cfg.Dir, "proxy.log"), a.servers[0].role.cfg.LogBytes)
		if err != nil {
			return fmt.Errorf("agent: the proxy's log: %w", err)
		}
		defer func() { _ = log.Close() }()
		cmd.Stdout, cmd.Stderr = log, log
	} else {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	running, err := child.Start(cmd, func() { _ = child.SignalGroup(cmd, syscall.SIGKILL) }) // whom it has left behind
	if err != nil {
		return fmt.Errorf("agent: start the proxy: %w", err)
	}
	a.env.Log.Info("proxy started", "command", line, "pid", cmd.Process.Pid)
	select {
	case <-running.Ended():
		return fmt.Errorf("agent: the proxy: %w; all others are stopped", cmp.Or(running.Wait(), errors.New("it has ended")))
	case <-ctx.Done():
	}
	_ = child.SignalGroup(cmd, syscall.SIGTERM) // fails only once it has ended
	kill := time.AfterFunc(a.cfg.Drain, func() { _ = child.SignalGroup(cmd, syscall.SIGKILL) })
	defer kill.Stop()
	<-running.Ended()
	return nil
}

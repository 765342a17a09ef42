package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A password in the NATS URL stays with those who need it: arguments of processes are read
// by everybody on the machine, and those of a model server stand in a fact.
func TestPasswordsStayOut(t *testing.T) {
	cfg := small(t)
	cfg.Logs.NATS = "nats://ops:sesame@127.0.0.1:4222"
	s := &Stack{Config: cfg, status: &statusServer{}}
	for _, task := range s.plan() {
		args, err := s.childArgs("monolith", task, "status.json")
		if err != nil || strings.Contains(strings.Join(args, " "), "sesame") {
			t.Errorf("%s is started with %q, %v", task.Name, args, err)
		}
	}
	var banner bytes.Buffer
	s.banner(&banner, 0)
	if strings.Contains(banner.String(), "sesame") {
		t.Errorf("the banner says %s", &banner)
	}
	d, err := OpenDataDir(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.announce(Running{NATS: cfg.Logs.NATS}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(cfg.Dir, "running.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("running.json holds the URL with mode %v, %v", info.Mode(), err)
	}
}

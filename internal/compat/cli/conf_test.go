package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that agent.conf includes need not be there; agent.conf itself must.
func TestAgentConfIncludes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("more.conf", "agent_port 4002\nbzid other\n")
	conf := write("agent.conf", "bzid b1\ninclude "+dir+"/absent.conf\ninclude="+dir+"/more.conf\nbase_name m # the model\n")
	if c, err := readAgentConf(conf); err != nil || c != (agentConf{bzid: "b1", baseName: "m", agentPort: "4002"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := readAgentConf(filepath.Join(dir, "absent.conf")); err == nil {
		t.Error("a --conf that is not there passes")
	}
	if _, err := readAgentConf(write("loop.conf", "include "+dir+"/loop.conf\n")); err == nil || !strings.Contains(err.Error(), "does one include itself") {
		t.Errorf("a file that includes itself: %v", err)
	}
}

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// agentConf is what the compatible commands need of an agent.conf.
type agentConf struct {
	bzid, baseName, zkServers, agentPort string
}

var confSeparator = regexp.MustCompile(`[ =\t]+`)

// readAgentConf reads lines "key value" and "key=value"; # begins a comment, include
// names a further file, which need not be there; the first of repeated keys counts. No
// file is no configuration.
func readAgentConf(path string) (agentConf, error) {
	var c agentConf
	if path == "" {
		return c, nil
	}
	values := map[string]string{}
	if err := readConf(path, values, 0); err != nil {
		return c, err
	}
	for key, at := range map[string]*string{"bzid": &c.bzid, "base_name": &c.baseName, "zk_servers": &c.zkServers, "agent_port": &c.agentPort} {
		if v := values[key]; !strings.EqualFold(v, "none") {
			*at = v
		}
	}
	return c, nil
}

// maxIncludes bounds how deep files include each other.
const maxIncludes = 16

func readConf(path string, values map[string]string, depth int) error {
	if depth > maxIncludes {
		return fmt.Errorf("%s: files include each other more than %d deep: does one include itself?", path, maxIncludes)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && depth > 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--conf: %w", err)
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	for s.Scan() {
		text, _, _ := strings.Cut(s.Text(), "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		parts := confSeparator.Split(text, 2)
		if len(parts) < 2 {
			continue // a key without a value keeps its default
		}
		if strings.HasPrefix(parts[0], "include") {
			if err := readConf(strings.TrimSpace(parts[1]), values, depth+1); err != nil {
				return err
			}
			continue
		}
		if _, again := values[parts[0]]; !again {
			values[parts[0]] = strings.TrimSpace(parts[1])
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Package agentconf is an agent.conf: what an agent of Monolith is told to serve, on which
// ports, and how its model servers are started. It reads the file, fills it up from the
// environment, and makes the command lines and configuration files of the servers of it.
package agentconf

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// values are what a file says: all that a key was given, in that order.
type values map[string][]string

var separator = regexp.MustCompile(`[ =\t]+`)

// maxIncludes bounds how deep files include each other.
const maxIncludes = 16

// readFile reads lines "key value" and "key=value"; # begins a comment, include names a further
// file, which need not be there. A key without a value says nothing.
func readFile(path string, into values, depth int) error {
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
		parts := separator.Split(strings.TrimSpace(text), 2)
		if len(parts) < 2 {
			continue
		}
		key, value := parts[0], strings.TrimSpace(parts[1])
		if strings.HasPrefix(key, "include") {
			if err := readFile(value, into, depth+1); err != nil {
				return err
			}
			continue
		}
		into[key] = append(into[key], value)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

package specfile

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/internal/vfs"
)

// listed are the keys that name a file with the values of a list: the spec that is made has the list.
var listed = regexp.MustCompile(`^sample_rules\[\d+\]\.where\[\d+\]\.in_file$`)

// values writes the list that is in the file which n names, as the condition's in.
func (j *lines) values(n *yaml.Node, comma string) error {
	line := n.Line
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return fmt.Errorf("line %d: in_file is the name of one file, with a value on each line", line)
	}
	all, err := j.list(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: in_file: %w", line, err)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return j.put(comma+`"in": `+string(text), line)
}

// listsIn reads files with a value on each line, named as from the folder dir. Blank lines are none.
func listsIn(dir string) func(string) ([]string, error) {
	return func(path string) (all []string, err error) {
		if !vfs.IsAbs(path) {
			path = vfs.Join(dir, path)
		}
		text, err := vfs.ReadText(context.Background(), path, MaxBytes)
		if err != nil {
			return nil, err
		}
		for s := range strings.Lines(string(text)) {
			if s = strings.TrimRight(s, "\r\n"); strings.TrimSpace(s) != "" {
				all = append(all, s)
			}
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s has no values: put one on each line", path)
		}
		if len(all) > samplerule.MaxIn {
			return nil, fmt.Errorf("%s has %d values: %d are allowed", path, len(all), samplerule.MaxIn)
		}
		return all, nil
	}
}

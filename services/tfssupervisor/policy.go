package tfssupervisor

import (
	"fmt"
	"strconv"
	"strings"
)

// policy is the version_policy of a saved model that a layout offers. Its zero value is latest.
type policy struct {
	once    bool  // latest_once: the newest one that is found first
	all     bool  // every version, as the server finds them
	version int64 // specific: this one; 0: the newest
}

// policyOf reads the name of a policy, as declarations have it. They cannot say which version
// specific means: the original's agents take 1 then, and here one may stand behind a colon.
func policyOf(text string) (policy, error) {
	switch name, number, named := strings.Cut(text, ":"); {
	case text == "" || text == "latest":
		return policy{}, nil
	case text == "latest_once":
		return policy{once: true}, nil
	case text == "all":
		return policy{all: true}, nil
	case text == "specific":
		return policy{version: 1}, nil
	case name == "specific" && named:
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
			return policy{version: n}, nil
		}
	}
	return policy{}, fmt.Errorf("version_policy %q is not allowed: declare it with latest, latest_once, all, specific (version 1) or specific:<version>", text)
}

// moves tells whether what has such a policy follows newer versions.
func moves(text string) bool {
	p, err := policyOf(text)
	return err == nil && !p.once && p.version == 0
}

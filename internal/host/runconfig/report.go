package runconfig

import (
	"fmt"
	"io"
	"strings"
)

// Override is a key that somebody has given, and what it came to.
type Override struct {
	Key   string   `json:"key"`
	Value string   `json:"value"`
	From  string   `json:"from"`            // environment, file, --set or flag
	Flags []string `json:"flags,omitempty"` // as they are in force
	Idle  string   `json:"idle,omitempty"`  // why it does nothing
}

// Report is what a run configuration came to.
type Report struct {
	Overrides []Override
}

// add notes a key that is not as it is by default.
func (r *Report) add(x Override) {
	if x.From != "" && (x.From != "flag" || len(x.Flags) > 0) {
		r.Overrides = append(r.Overrides, x)
	}
}

// note says what a key came to together with others.
func (r *Report) note(key, flag string) {
	for i := range r.Overrides {
		if r.Overrides[i].Key == key {
			r.Overrides[i].Flags = append(r.Overrides[i].Flags, flag)
		}
	}
}

// All are the overrides; none of nil.
func (r *Report) All() []Override {
	if r == nil {
		return nil
	}
	return r.Overrides
}

// Facts are the user's own overrides, as key=value: those of the environment are its launcher's.
func (r *Report) Facts() (list []string) {
	for _, x := range r.All() {
		if x.From != fromEnvironment {
			list = append(list, x.Key+"="+x.Value)
		}
	}
	return list
}

// String says what came of the key, in one line.
func (x Override) String() string {
	s := fmt.Sprintf("%s %s (%s)", x.Key, x.Value, x.From)
	switch {
	case len(x.Flags) > 0:
		s += ": " + strings.Join(x.Flags, " ")
	case x.Idle != "":
		s += " does nothing: " + x.Idle
	}
	return s
}

// Print lists the overrides for people.
func (r *Report) Print(w io.Writer) {
	if len(r.All()) == 0 {
		return
	}
	fmt.Fprintln(w, "run configuration:")
	for _, x := range r.All() {
		fmt.Fprintln(w, " ", x)
	}
}

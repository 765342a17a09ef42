package view

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/internal/fold"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
)

// jsonState is a State as people and hashes see it. Nodes, the largest part, are written
// one by one behind its other fields.
type jsonState struct {
	Seq        uint64                           `json:"seq"`
	Nodes      map[string]tree.JSONNode         `json:"nodes,omitempty"` // read only
	Containers map[string]Member                `json:"containers"`
	Replicas   map[string]znodedata.ReplicaMeta `json:"replicas"`
	Sessions   map[int64]tree.Session           `json:"sessions,omitempty"`
	Imports    map[string]Import                `json:"imports,omitempty"`
	Skipped    fold.Skipped                     `json:"skipped,omitempty"`
}

// MarshalJSON writes the same bytes for the same state, however it came about.
func (s State) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := Freeze(s)(&out)
	return out.Bytes(), err
}

// Freeze takes the state as it is and returns what writes its canonical JSON, which may
// run while the state goes on, and must run once.
func Freeze(s State) func(io.Writer) error {
	t, release := s.nodes.Freeze()
	// Now: its maps are the state's.
	rest, err := tree.Canonical(jsonState{Containers: s.Containers, Replicas: s.Replicas, Sessions: t.Head().Sessions, Imports: s.Imports, Skipped: s.Skipped})
	return func(w io.Writer) error {
		defer release()
		if err != nil {
			return err
		}
		out := bufio.NewWriterSize(w, 64<<10)
		fmt.Fprintf(out, `{"seq":%d,"nodes":{`, s.Seq)
		if err := t.WriteNodes(out); err != nil {
			return err
		}
		fmt.Fprintf(out, `},%s`, bytes.TrimPrefix(rest, []byte(`{"seq":0,`)))
		return out.Flush() // which has the first error of all of them
	}
}

// UnmarshalJSON restores a state.
func (s *State) UnmarshalJSON(data []byte) error {
	in := jsonState{Containers: map[string]Member{}, Replicas: map[string]znodedata.ReplicaMeta{}}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	nodes, err := tree.FromJSON(in.Nodes, in.Sessions)
	if err != nil {
		return err
	}
	*s = state(nodes)
	s.Seq, s.Containers, s.Replicas, s.Imports, s.Skipped = in.Seq, in.Containers, in.Replicas, in.Imports, in.Skipped
	return nil
}

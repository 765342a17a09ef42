package view

import (
	"encoding/json"
	"errors"
	"io"

	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/internal/fold"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

type snapshotHead struct {
	Seq        uint64                           `json:"seq"`
	Nodes      int                              `json:"nodes"`
	Containers map[string]Member                `json:"containers"`
	Replicas   map[string]znodedata.ReplicaMeta `json:"replicas"`
	Sessions   map[int64]tree.Session           `json:"sessions"`
	ACLs       [][]wire.ACL                     `json:"acls"`
	Imports    map[string]Import                `json:"imports,omitempty"`
	Skipped    fold.Skipped                     `json:"skipped,omitempty"`
}

// Encode takes the state as it is and returns what writes it, which may run while the
// state goes on, and must run once.
func Encode(s State) func(io.Writer) error {
	t, release := s.nodes.Freeze()
	h := t.Head()
	head := snapshotHead{
		Seq: s.Seq, Nodes: h.Nodes, Containers: s.Containers, Replicas: s.Replicas, Sessions: h.Sessions, ACLs: h.ACLs, Imports: s.Imports, Skipped: s.Skipped,
	}
	meta, err := json.Marshal(head) // now: its maps are the state's
	return func(w io.Writer) error {
		defer release()
		if err != nil {
			return err
		}
		return t.Encode(w, meta)
	}
}

// Decode reads what Encode wrote. It trusts nothing: whatever the bytes are, it returns a
// tree that holds together, or an error.
func Decode(r io.Reader) (State, error) {
	head := snapshotHead{Containers: map[string]Member{}, Replicas: map[string]znodedata.ReplicaMeta{}, Sessions: map[int64]tree.Session{}}
	nodes, err := tree.Decode(r, func(meta []byte) (tree.Head, error) {
		if err := json.Unmarshal(meta, &head); err != nil {
			return tree.Head{}, err
		}
		if head.Containers == nil || head.Replicas == nil || head.Sessions == nil {
			return tree.Head{}, errors.New("a part of it is missing")
		}
		return tree.Head{Nodes: head.Nodes, Sessions: head.Sessions, ACLs: head.ACLs}, nil
	})
	if err != nil {
		return State{}, err
	}
	s := state(nodes)
	s.Seq, s.Containers, s.Replicas, s.Imports, s.Skipped = head.Seq, head.Containers, head.Replicas, head.Imports, head.Skipped
	return s, nil
}

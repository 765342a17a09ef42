// Package savedmodel reads what Monolith wants to know of a TensorFlow SavedModel: the
// name under which an exported entry calls its parameter servers.
package savedmodel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxBytes bounds saved_model.pb. Graphs of entries have some megabytes.
const maxBytes = 256 << 20

// remotePredict is the operation by which an entry asks another sub-model.
const remotePredict = "TfServingRemotePredict"

// ErrNoRemote is returned for an entry that calls nobody, so that nothing in it names the
// model.
var ErrNoRemote = errors.New("no " + remotePredict + " node")

// Field numbers of TensorFlow's messages.
const (
	savedModelMetaGraphs = 2
	metaGraphGraphDef    = 2
	graphNode            = 1
	graphLibrary         = 2
	libraryFunction      = 1
	functionNode         = 3
	nodeName             = 1
	nodeOp               = 2
	nodeAttr             = 5
	mapKey               = 1
	mapValue             = 2
	attrString           = 2
)

// FindModelName reads the newest version of exportBase/entry and returns the name under
// which it calls its parameter servers: the model's, without the sub-model behind the
// colon. ErrNoRemote says that it calls none.
func FindModelName(exportBase string) (string, error) {
	entry := filepath.Join(exportBase, "entry")
	children, err := os.ReadDir(entry)
	if err != nil {
		return "", fmt.Errorf("the export's entry: %w: give the exported_models folder that holds entry/", err)
	}
	var versions []int64
	for _, c := range children {
		if v, err := strconv.ParseInt(c.Name(), 10, 64); err == nil && v > 0 && strconv.FormatInt(v, 10) == c.Name() {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		return "", fmt.Errorf("%s holds no version: wait for an export to finish, or export again", entry)
	}
	path := filepath.Join(entry, strconv.FormatInt(slices.Max(versions), 10), "saved_model.pb")
	data, err := read(path)
	if err != nil {
		return "", err
	}
	name, err := RemoteModel(data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return name, nil
}

// RemoteModel returns the model that a serialized SavedModel calls: the text before the
// colon of attr model_name of the first node that does, in the order of the file, the
// graph's own nodes before those of functions. A node without that name is passed over.
func RemoteModel(data []byte) (name string, err error) {
	err = Nodes(data, func(n Node) bool {
		if n.Op != remotePredict {
			return true
		}
		name, _, _ = strings.Cut(n.ModelName, ":")
		return name == ""
	})
	if err == nil && name == "" {
		err = ErrNoRemote
	}
	return name, err
}

// Node is what is read of one NodeDef.
type Node struct {
	Name, Op  string
	ModelName string // attr model_name where it is text
}

// Nodes calls visit for every node of every graph in a serialized SavedModel until it
// returns false, those of a graph before those of its functions. What the bytes hold
// besides is passed over unread; bytes behind the last visit need not be sound.
func Nodes(data []byte, visit func(Node) bool) error {
	return stopped(each(data, savedModelMetaGraphs, func(meta []byte) error {
		return each(meta, metaGraphGraphDef, func(graph []byte) error {
			node := func(raw []byte) error {
				n, err := parseNode(raw)
				if err == nil && !visit(n) {
					err = errStop
				}
				return err
			}
			if err := each(graph, graphNode, node); err != nil {
				return err
			}
			return each(graph, graphLibrary, func(library []byte) error {
				return each(library, libraryFunction, func(function []byte) error {
					return each(function, functionNode, node)
				})
			})
		})
	}))
}

var errStop = errors.New("enough")

func stopped(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func parseNode(raw []byte) (n Node, err error) {
	err = fields(raw, func(field protowire.Number, value []byte) error {
		switch field {
		case nodeName:
			n.Name = string(value)
		case nodeOp:
			n.Op = string(value)
		case nodeAttr:
			var key string
			var attr []byte
			err := fields(value, func(field protowire.Number, value []byte) error {
				switch field {
				case mapKey:
					key = string(value)
				case mapValue:
					attr = value
				}
				return nil
			})
			if err != nil || key != "model_name" {
				return err
			}
			return each(attr, attrString, func(s []byte) error { n.ModelName = string(s); return nil })
		}
		return nil
	})
	return n, err
}

// each calls f with every value of one length-delimited field.
func each(raw []byte, want protowire.Number, f func([]byte) error) error {
	return fields(raw, func(field protowire.Number, value []byte) error {
		if field != want {
			return nil
		}
		return f(value)
	})
}

// fields calls f with every length-delimited field of a message and passes over others.
func fields(raw []byte, f func(protowire.Number, []byte) error) error {
	for len(raw) > 0 {
		field, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return fmt.Errorf("malformed: %w", protowire.ParseError(n))
		}
		raw = raw[n:]
		if kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(raw)
			if n < 0 {
				return fmt.Errorf("malformed field %d: %w", field, protowire.ParseError(n))
			}
			raw = raw[n:]
			if err := f(field, value); err != nil {
				return err
			}
			continue
		}
		if n = protowire.ConsumeFieldValue(field, kind, raw); n < 0 {
			return fmt.Errorf("malformed field %d: %w", field, protowire.ParseError(n))
		}
		raw = raw[n:]
	}
	return nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the export's entry: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s is longer than %d MiB, which is more than is read of a graph", path, maxBytes>>20)
	}
	return data, nil
}

package ensemble

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/events/znode"
)

// work is what one comparison finds to do: imports into the log, and writes to the
// ensemble. Nodes that change their kind go first, then removals, children before their
// parents, then what is made and set, and access lists last.
type work struct {
	*term
	imports                   []seen
	takeovers, puts, removals []op
	relists                   []relist
	drifts                    []Drift
	agreed                    []string
}

// judge decides on one path.
func (w *work) judge(path string, o *localNode, t *remoteNode) {
	if t != nil && t.opaque {
		delete(w.retry, path)
		w.stick(path, "read", zk.ErrNoAuth)
		return
	}
	v, drift := decide(path, o, t, &w.syncState)
	delete(w.later, path) // unless it cannot be written now
	switch {
	case t == nil:
		delete(w.there, path)
	case o != nil && v == agree:
		w.saw(path, o.written)
	}
	if t != nil && w.retry[path] == t.mzxid && v != agree && !(o != nil && o.held) {
		v, drift = importWrite, false
	} else {
		delete(w.retry, path)
	}
	if v == remove && w.keep != nil {
		*w.keep = append(*w.keep, path)
		return
	}
	put, moved := decideACL(path, o, t, &w.syncState)
	if (v != agree && v != set) || put == agree {
		put, moved = agree, false
	}
	switch {
	case drift:
		w.drifts = append(w.drifts, Drift{path, v.String(), time.Now()})
	case moved:
		w.drifts = append(w.drifts, Drift{path, put.String(), time.Now()})
	}
	if t != nil && t.mzxid > w.Zxid {
		w.handled[path] = t.mzxid
	}
	delete(w.refused, path)
	if v == agree && put == agree {
		w.agreed = append(w.agreed, path)
	}
	if w.note(path, v, o, t) {
		w.noteACL(path, put, o, t)
	}
}

// note keeps what is to be done with the node; false: it waits for its access list.
func (w *work) note(path string, v action, o *localNode, t *remoteNode) bool {
	at := w.cfg.Chroot + path
	switch v {
	case importWrite:
		m := &znode.Imported{Path: path, Kind: znode.Imported_WRITTEN, Data: t.data, Owner: t.owner, Czxid: t.czxid, Mzxid: t.mzxid}
		if o == nil || w.createdByOther(t) {
			if t.acl == nil { // it is gone meanwhile, or says no more
				w.retry[path], w.later[path] = t.mzxid, 0
				return false
			}
			m.Acl, m.Aversion = factACL(t.acl), t.aversion
		}
		w.imports = append(w.imports, seen{path: path, t: t, message: m})
	case importDelete:
		w.imports = append(w.imports, seen{path: path, message: &znode.Imported{Path: path, Kind: znode.Imported_DELETED}})
	case create:
		w.puts = append(w.puts, op{path, v, []any{o.request(at)}, len(o.data) + len(at), o.written})
	case set:
		w.puts = append(w.puts, op{path, v, []any{&zk.SetDataRequest{Path: at, Data: o.data, Version: t.version}}, len(o.data) + len(at), o.written})
	case replace:
		w.takeovers = append(w.takeovers, op{path, v, []any{&zk.DeleteRequest{Path: at, Version: t.version}, o.request(at)}, len(o.data) + 2*len(at), o.written})
	case remove:
		w.removals = append(w.removals, op{path, v, []any{&zk.DeleteRequest{Path: at, Version: t.version}}, len(at), 0})
	}
	return true
}

// noteACL keeps what is to be done with the node's access list alone.
func (w *work) noteACL(path string, put action, o *localNode, t *remoteNode) {
	switch put {
	case setACL:
		w.relists = append(w.relists, relist{path, o.acl, t.aversion, o.aversion})
	case importACL:
		w.imports = append(w.imports, seen{path: path, t: t, list: true, message: &znode.Imported{
			Path: path, Kind: znode.Imported_ACL_SET, Acl: factACL(t.acl), Aversion: t.aversion}})
	}
}

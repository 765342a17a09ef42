// Package transfer holds the facts about bytes of models: what was copied where, and which
// deltas a replica has made visible. Model-sync owns them.
package transfer

import (
	"net"
	"path/filepath"

	"github.com/monolith-go/monolith/events"
)

// maxPath is what file systems take.
const maxPath = 4096

// maxFolders bounds the folders that one host offers.
const maxFolders = 256

// Validate reports the rules that e breaks on the subject of aggregate,
// <model>/<sub-model>/<container or host>, or the host, as an [events.ErrInvalid].
func (e *Event) Validate(aggregate string) error {
	var r events.Rules
	r.Named("the aggregate", aggregate)
	r.Bounded(e)
	switch b := e.GetBody().(type) {
	case *Event_ModelCopied:
		c := b.ModelCopied
		of(&r, aggregate, c.GetModelName(), c.GetSubModel(), c.GetHost())
		r.Check(c.GetVersion() > 0, "a copy needs its version")
		r.Check(filepath.IsAbs(c.GetPath()), "path %q must be absolute", c.GetPath())
		r.Check(len(c.GetPath()) <= maxPath && len(c.GetSource()) <= maxPath, "path and source take at most %d bytes each", maxPath)
		r.Check(c.GetSource() == "" || filepath.IsAbs(c.GetSource()), "source %q must be absolute", c.GetSource())
		r.Check(len(c.GetExport()) <= 64, "export %q is no SHA-256 in hexadecimal", c.GetExport())
	case *Event_DeltasApplied:
		d := b.DeltasApplied
		of(&r, aggregate, d.GetModelName(), d.GetSubModel(), d.GetContainer())
		r.Check(len(d.GetApplied()) > 0, "no delta is named")
		for i, a := range d.GetApplied() {
			r.Check(i == 0 || d.GetApplied()[i-1].GetSyncSeq() < a.GetSyncSeq(), "applied sequences must rise")
		}
	case *Event_TargetFailed:
		t := b.TargetFailed
		of(&r, aggregate, t.GetModelName(), t.GetSubModel(), t.GetTarget())
		r.Reason("a failure", t.GetReason())
	case *Event_SourceOffered:
		o := b.SourceOffered
		r.Check(o.GetHost() == aggregate, "the body is about host %s, its subject about %s", o.GetHost(), aggregate)
		r.Check(len(o.GetFolders()) <= maxFolders, "%d folders are offered, at most %d are allowed", len(o.GetFolders()), maxFolders)
		for _, f := range o.GetFolders() {
			r.Check(filepath.IsAbs(f) && filepath.Clean(f) == f && len(f) <= maxPath, "folder %q must be absolute and clean, of at most %d bytes", f, maxPath)
		}
		if o.GetAddress() != "" {
			host, port, err := net.SplitHostPort(o.GetAddress())
			r.Check(err == nil && host != "" && port != "" && len(o.GetAddress()) <= events.MaxName, "address %q is not host:port", o.GetAddress())
		}
	}
	return r.Err()
}

func of(r *events.Rules, aggregate, model, sub, where string) {
	r.Check(model+"/"+sub+"/"+where == aggregate, "the body is about %s/%s/%s, its subject about %s", model, sub, where, aggregate)
}

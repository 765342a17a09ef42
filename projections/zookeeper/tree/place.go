package tree

// Place is where a path was found last: a node is told from a later one in its memory by
// the zxid that created it.
type Place struct {
	id    uint32
	czxid uint64
}

// Look is Find, at the place first. Places are used by single events, never inside a
// pack, whose parts have one zxid.
func (t *Tree) Look(path string, p *Place) uint32 {
	if p.id != 0 {
		if n := t.nodes.at(p.id); n.czxid == p.czxid && n.nameLen&unlinked == 0 {
			return p.id
		}
	}
	id := t.Find(path)
	*p = Place{}
	if id != 0 {
		if z := t.nodes.at(id).czxid; z > 0 && z <= t.zxid {
			*p = Place{id, z}
		}
	}
	return id
}

package tree

// SessionCount is how many sessions are open.
func (r Reader) SessionCount() int { return len(r.t.sessions) }

// Descendants is how many nodes lie below path, at any depth; 0 for a node that is not
// there. It visits each of them, but for those of "/".
func (r Reader) Descendants(path string) int {
	t := r.t
	top := t.Find(path)
	switch top {
	case 0:
		return 0
	case root:
		return t.count - 1
	}
	n := 0
	t.below(top, func(uint32) { n++ })
	return n
}

// below visits every node below top.
func (t *Tree) below(top uint32, visit func(id uint32)) {
	for id := t.dirOf(top).first; id != 0; {
		visit(id)
		if d := t.dirOf(id); d.first != 0 {
			id = d.first
			continue
		}
		for id != top && t.nodes.at(id).next == 0 {
			id = t.nodes.at(id).parent
		}
		if id == top {
			return
		}
		id = t.nodes.at(id).next
	}
}

package wire

// CreateRequest is the request of create, create2, createContainer and, with TTL,
// createTTL; it is also what those are inside a multi.
type CreateRequest struct {
	Path  string
	Data  []byte // nil: no data at all, which is not empty data
	ACL   []ACL
	Flags int32 // ZooKeeper's CreateMode: 1 ephemeral, 2 sequential, 3 both, 4 container, 5 and 6 TTL
	TTL   int64 // ms, of createTTL alone
}

func (c *CreateRequest) Encode(w *Writer, ttl bool) {
	w.String(c.Path)
	w.Buffer(c.Data)
	EncodeACLs(w, c.ACL)
	w.Int32(c.Flags)
	if ttl {
		w.Int64(c.TTL)
	}
}

func (c *CreateRequest) Decode(r *Reader, ttl bool) {
	*c = CreateRequest{Path: r.Text(), Data: r.Buffer(), ACL: DecodeACLs(r), Flags: r.Int32()}
	if ttl {
		c.TTL = r.Int64()
	}
}

// PathVersion is the request of delete and check.
type PathVersion struct {
	Path    string
	Version int32 // -1: any
}

func (p *PathVersion) Encode(w *Writer) { w.String(p.Path); w.Int32(p.Version) }
func (p *PathVersion) Decode(r *Reader) { *p = PathVersion{r.Text(), r.Int32()} }

// SetDataRequest is the request of setData.
type SetDataRequest struct {
	Path    string
	Data    []byte
	Version int32
}

func (s *SetDataRequest) Encode(w *Writer) { w.String(s.Path); w.Buffer(s.Data); w.Int32(s.Version) }
func (s *SetDataRequest) Decode(r *Reader) { *s = SetDataRequest{r.Text(), r.Buffer(), r.Int32()} }

// SetACLRequest is the request of setACL; its version is the ACL's.
type SetACLRequest struct {
	Path    string
	ACL     []ACL
	Version int32
}

func (s *SetACLRequest) Encode(w *Writer) { w.String(s.Path); EncodeACLs(w, s.ACL); w.Int32(s.Version) }
func (s *SetACLRequest) Decode(r *Reader) { *s = SetACLRequest{r.Text(), DecodeACLs(r), r.Int32()} }

// PathMode is the request of addWatch (mode 0 persistent, 1 persistent recursive), and
// of checkWatches and removeWatches (1 children, 2 data, 3 any, and since 3.9
// 4 persistent, 5 persistent recursive).
type PathMode struct {
	Path string
	Mode int32
}

func (p *PathMode) Encode(w *Writer) { w.String(p.Path); w.Int32(p.Mode) }
func (p *PathMode) Decode(r *Reader) { *p = PathMode{r.Text(), r.Int32()} }

// EncodeACLs writes nil as empty, as Strings does.
func EncodeACLs(w *Writer, acls []ACL) {
	w.Int32(int32(len(acls)))
	for i := range acls {
		acls[i].Encode(w)
	}
}

// DecodeACLs is nil for an absent or empty list.
func DecodeACLs(r *Reader) []ACL {
	n := r.Count(12) // perms and the lengths of two strings
	if n == 0 {
		return nil
	}
	acls := make([]ACL, n)
	for i := range acls {
		acls[i].Decode(r)
	}
	if r.Err() != nil {
		return nil
	}
	return acls
}

package powercut

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// child is n as the kernel is told of it. The caller holds the disk's lock.
func (f *file) child(ctx context.Context, n *node, out *fuse.EntryOut) *fs.Inode {
	n.attr(&out.Attr)
	return f.NewInode(ctx, &file{disk: f.disk, node: n}, fs.StableAttr{Mode: n.mode & typeMask, Ino: n.ino})
}

func (n *node) attr(out *fuse.Attr) {
	out.Ino, out.Mode, out.Nlink = n.ino, n.mode, uint32(n.links)
	out.Size, out.Blksize = uint64(len(n.data)), pageSize
	out.Blocks = (out.Size + sectorSize - 1) / sectorSize
	if n.isDir() && !n.named.IsZero() {
		out.SetTimes(nil, &n.named, &n.named)
	}
}

func (f *file) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n := f.node.entries[name]
	if n == nil {
		return nil, syscall.ENOENT
	}
	return f.child(ctx, n, out), 0
}

func (f *file) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	var list []fuse.DirEntry
	for name, n := range f.node.entries {
		list = append(list, fuse.DirEntry{Name: name, Mode: n.mode, Ino: n.ino})
	}
	return fs.NewListDirStream(list), 0
}

func (f *file) make(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.node.entries[name] != nil {
		return nil, syscall.EEXIST
	}
	n := f.disk.node(mode)
	f.disk.rename(step{f.node, name, n})
	return f.child(ctx, n, out), 0
}

func (f *file) Create(ctx context.Context, name string, _ uint32, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n, errno := f.make(ctx, name, mode&^typeMask|syscall.S_IFREG, out)
	return n, nil, 0, errno
}

func (f *file) Mknod(ctx context.Context, name string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return f.make(ctx, name, mode, out)
}

func (f *file) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return f.make(ctx, name, mode&^typeMask|dirType, out)
}

func (f *file) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.node.entries[name] != nil {
		return nil, syscall.EEXIST
	}
	n := target.(*file).node
	n.links++
	f.disk.rename(step{f.node, name, n})
	return f.child(ctx, n, out), 0
}

func (f *file) Unlink(_ context.Context, name string) syscall.Errno { return f.remove(name) }

func (f *file) Rmdir(_ context.Context, name string) syscall.Errno { return f.remove(name) }

func (f *file) remove(name string) syscall.Errno {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	n := f.node.entries[name]
	switch {
	case n == nil:
		return syscall.ENOENT
	case len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	n.links--
	f.disk.rename(step{f.node, name, nil})
	return 0
}

func (f *file) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	from, to := f.node, newParent.(*file).node
	n, there := from.entries[name], to.entries[newName]
	switch {
	case n == nil:
		return syscall.ENOENT
	case flags&unix.RENAME_EXCHANGE != 0:
		if there == nil {
			return syscall.ENOENT
		}
		f.disk.rename(step{from, name, there}, step{to, newName, n})
		return 0
	case there != nil && flags&unix.RENAME_NOREPLACE != 0:
		return syscall.EEXIST
	case there != nil && len(there.entries) > 0:
		return syscall.ENOTEMPTY
	case there == n:
		return 0
	}
	if there != nil {
		there.links--
	}
	f.disk.rename(step{from, name, nil}, step{to, newName, n})
	return 0
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) { return nil, 0, 0 }

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if off >= int64(len(f.node.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(dest[:copy(dest, f.node.data[off:])]), 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.write(f.node, data, off)
	return uint32(len(data)), 0
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if !f.disk.sync(f.node) {
		return syscall.EIO
	}
	return 0
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.node.attr(&out.Attr)
	return 0
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if size, ok := in.GetSize(); ok {
		f.disk.resize(f.node, int64(size))
	}
	if mode, ok := in.GetMode(); ok { // permissions are on disk at once: no test is about them
		f.node.mode = f.node.mode&typeMask | mode&^typeMask
	}
	f.node.attr(&out.Attr)
	return 0
}

func (f *file) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode != 0 {
		return syscall.EOPNOTSUPP
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if end := int64(off + size); end > int64(len(f.node.data)) {
		f.disk.resize(f.node, end)
	}
	return 0
}

func (f *file) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	const room = 1 << 40 / pageSize
	out.Bsize, out.Frsize, out.Blocks, out.Bfree, out.Bavail, out.NameLen = pageSize, pageSize, room, room, room, 255
	return 0
}

package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// FS is a mounted file system that forgets. Its methods must not be called concurrently.
type FS struct {
	dir    string
	disk   *disk
	server *fuse.Server
}

// Mount mounts an empty one at dir, which must be there. It takes /dev/fuse and root.
func Mount(dir string, p Policy) (*FS, error) {
	f := &FS{dir: dir, disk: newDisk(p)}
	return f, f.mount()
}

func (f *FS) mount() (err error) {
	second := time.Second // the kernel is the only one that changes anything
	f.server, err = fs.Mount(f.dir, &file{disk: f.disk, node: f.disk.root}, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second,
		MountOptions: fuse.MountOptions{FsName: "powercut", Name: "powercut", DirectMountStrict: true, AllowOther: true},
	})
	if err != nil {
		return fmt.Errorf("mount at %s: %w", f.dir, err)
	}
	return nil
}

// Cut takes the power away: from one instant on no sync returns. kill sends SIGKILL to
// every process that uses the file system, wait waits for their ends. What is found at the
// folder afterwards is what was on disk at that instant.
func (f *FS) Cut(r Residue, rng *rand.Rand, kill, wait func()) error {
	return f.CutOnce(func([]string) bool { return true }, r, rng, kill, wait)
}

// CutOnce is Cut at the first instant at which ready is true of what Unsynced lists then. It
// looks each millisecond, for a minute.
func (f *FS) CutOnce(ready func(unsynced []string) bool, r Residue, rng *rand.Rand, kill, wait func()) error {
	f.disk.mu.Lock()
	for began := time.Now(); ; {
		unsynced := f.disk.unsynced()
		if ready(unsynced) {
			break
		}
		f.disk.mu.Unlock()
		if time.Since(began) > time.Minute {
			return fmt.Errorf("no instant to take the power away in a minute, these names are not on disk: %q", unsynced)
		}
		time.Sleep(time.Millisecond)
		f.disk.mu.Lock()
	}
	after := f.disk.after(r, rng)
	over := make(chan struct{})
	f.disk.cut = over
	f.disk.mu.Unlock()
	kill()
	close(over) // whoever waited for a sync is dead, and goes once it is answered
	wait()
	if err := f.Close(); err != nil {
		return err
	}
	f.disk = after
	return f.mount()
}

// Unsynced are the paths below the folder that a cut would bring back or take away now, in
// folders that are there: each creation, renaming and removal is one.
func (f *FS) Unsynced() []string {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.disk.unsynced()
}

// Close unmounts it, and so forgets all of it.
func (f *FS) Close() error {
	var err error
	for range 50 { // what the kernel still does for a dead process
		if err = f.server.Unmount(); err == nil {
			f.server.Wait()
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(fmt.Errorf("unmount %s: %w", f.dir, err), syscall.Unmount(f.dir, syscall.MNT_DETACH))
}

// file is a node as the kernel knows it.
type file struct {
	fs.Inode
	disk *disk
	node *node
}

var (
	_ fs.NodeLookuper  = (*file)(nil)
	_ fs.NodeReaddirer = (*file)(nil)
	_ fs.NodeCreater   = (*file)(nil)
	_ fs.NodeMknoder   = (*file)(nil)
	_ fs.NodeMkdirer   = (*file)(nil)
	_ fs.NodeLinker    = (*file)(nil)
	_ fs.NodeUnlinker  = (*file)(nil)
	_ fs.NodeRmdirer   = (*file)(nil)
	_ fs.NodeRenamer   = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
	_ fs.NodeStatfser  = (*file)(nil)
)

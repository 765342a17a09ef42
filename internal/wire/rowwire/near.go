package rowwire

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// deadAfter is how old a socket is at least that is taken for one that a killed process
// has left: a younger one may be about to be listened on.
const deadAfter = time.Minute

// maxSocketPath is what fits into the address of a unix socket.
const maxSocketPath = 100

// ListenNear opens a unix socket that leads here from this machine alone: its name is drawn,
// so that the same path on another machine, or in another container, is nobody's. Only this
// user's processes can connect. Closing it removes the file.
func ListenNear(ctx context.Context) (net.Listener, error) {
	dir, err := nearDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, rand.Text()+".sock")
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("a socket for callers on this machine would be %s, of more than %d bytes: set a shorter TMPDIR", path, maxSocketPath)
	}
	return Listen(ctx, "unix://"+path)
}

// nearDir is this user's folder of sockets; those in it that nobody listens on are removed.
func nearDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "monolith-rows-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return "", fmt.Errorf("a folder for sockets: %w", err)
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("a folder for sockets: %w", err)
	}
	if !st.IsDir() || st.Mode().Perm() != 0o700 || !own(st) {
		return "", fmt.Errorf("%s is not a folder of this user alone: remove it, or set another TMPDIR", dir)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("a folder for sockets: %w", err)
	}
	for _, f := range files {
		if st, err := f.Info(); err == nil && st.Mode()&os.ModeSocket != 0 && time.Since(st.ModTime()) > deadAfter {
			removeDead(filepath.Join(dir, f.Name()))
		}
	}
	return dir, nil
}

// removeDead removes a socket on which nobody listens.
func removeDead(path string) {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return
	}
	if refused(err) {
		_ = os.Remove(path)
	}
}

// isNear says that a server's further address leads somewhere from here.
func isNear(addr string) bool {
	path, ok := strings.CutPrefix(addr, "unix://")
	if !ok {
		return false
	}
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&os.ModeSocket != 0
}

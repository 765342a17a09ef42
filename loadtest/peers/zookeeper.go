package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/freeport"
)

// ZooKeeper is Apache's server as Debian packages it, alone, with fsync before each
// answer, which is its default.
type ZooKeeper struct {
	dir  string
	addr string
	cmd  *exec.Cmd
	gone chan struct{} // closed when cmd has ended
	said bytes.Buffer  // its output; read it once it is gone
}

// Java's virtual machine takes a quarter of the memory at most, as nothing in Debian's
// package says otherwise.
const (
	zookeeperJar     = "/usr/share/java/zookeeper.jar"
	zookeeperClasses = "/usr/share/java/*"
	zookeeperWithin  = time.Minute // until it answers
)

// StartZooKeeper runs the server on a free port with its data below dir.
func StartZooKeeper(ctx context.Context, dir string) (*ZooKeeper, error) {
	if _, err := os.Stat(zookeeperJar); err != nil {
		return nil, fmt.Errorf("find Apache ZooKeeper (run make oracles): %w", ErrMissing)
	}
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{dir: dir, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	conf := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
		filepath.Join(dir, "data"), port)
	if err := os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	_, err = z.Start(ctx)
	return z, err
}

// Addr is where clients connect.
func (z *ZooKeeper) Addr() string { return z.addr }

// PID is of the process that runs now.
func (z *ZooKeeper) PID() int { return z.cmd.Process.Pid }

// Start runs the server on the data that it has, and returns how long it took until it
// answered.
func (z *ZooKeeper) Start(ctx context.Context) (time.Duration, error) {
	z.said.Reset()
	z.cmd = exec.Command("java", "-cp", zookeeperClasses, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(z.dir, "zoo.cfg"))
	z.cmd.Stdout, z.cmd.Stderr = &z.said, &z.said
	began := time.Now()
	if err := z.cmd.Start(); err != nil {
		return 0, fmt.Errorf("start Apache ZooKeeper: %w", err)
	}
	z.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // it is killed, or its output says why it ended
		close(gone)
	}(z.cmd, z.gone)
	for !serves(z.addr) {
		select {
		case <-z.gone:
			return 0, fmt.Errorf("process of Apache ZooKeeper ended: %s", z.said.Bytes())
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), z.Stop())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Since(began) > zookeeperWithin {
			return 0, errors.Join(fmt.Errorf("server of Apache ZooKeeper does not answer at %s", z.addr), z.Stop())
		}
	}
	return time.Since(began), nil
}

// Stop ends the process in the orderly way.
func (z *ZooKeeper) Stop() error {
	select {
	case <-z.gone:
		return nil
	default:
	}
	if err := z.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-z.gone:
		return nil
	case <-time.After(10 * time.Second):
	}
	err := z.cmd.Process.Kill()
	<-z.gone
	return err
}

// Close ends it; its folder is the caller's.
func (z *ZooKeeper) Close() error { return z.Stop() }

// serves says whether the server at addr answers as one that takes requests.
func serves(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	if c.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := c.Write([]byte("srvr")); err != nil {
		return false
	}
	said, _ := io.ReadAll(c) // what came before an error counts
	return bytes.HasPrefix(said, []byte("Zookeeper version"))
}

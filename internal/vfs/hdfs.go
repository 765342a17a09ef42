package vfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
)

// ErrConfiguration says that a path of HDFS leads to no cluster as Hadoop's configuration stands.
var ErrConfiguration = errors.New("the path leads to no HDFS")

const (
	namenodePort = "8020"
	// dialPatience is for a connection, answerPatience for the namenode's answer to one call.
	dialPatience   = 10 * time.Second
	answerPatience = 60 * time.Second
	// closePatience is for the namenode to hear from the datanodes of what they have acknowledged.
	closePatience = time.Minute
)

// pool is the clusters to which this process has a connection, by the authority of their paths.
type pool struct {
	mu    sync.Mutex // held while a connection is made: who wants the same one waits
	known map[string]*cluster
}

var clusters pool

// CloseIdle ends the connections to clusters. Paths make new ones; files that are open then end in errors.
func CloseIdle() error {
	clusters.mu.Lock()
	defer clusters.mu.Unlock()
	var errs []error
	for _, c := range clusters.known {
		errs = append(errs, c.Client.Close())
	}
	clusters.known = nil
	return errors.Join(errs...)
}

func (p *pool) of(path string) (FileSystem, error) {
	authority, _ := split(path)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.known[authority]; ok {
		return c, nil
	}
	options, err := options(authority)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	client, err := hdfs.NewClient(options)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to HDFS at %s: %w", path, strings.Join(options.Addresses, ", "), err)
	}
	if p.known == nil {
		p.known = map[string]*cluster{}
	}
	c := &cluster{client}
	p.known[authority] = c
	return c, nil
}

// options says how the cluster of an authority is reached.
func options(authority string) (hdfs.ClientOptions, error) {
	conf, err := hadoopconf.LoadFromEnvironment()
	if err != nil {
		return hdfs.ClientOptions{}, fmt.Errorf("%w: read Hadoop's configuration: %w", ErrConfiguration, err)
	}
	o := hdfs.ClientOptionsFromConf(conf)
	if o.KerberosClient != nil {
		return o, fmt.Errorf("%w: Hadoop's configuration demands Kerberos, with which nothing here signs in: copy the files with hadoop fs, or name a cluster without it", ErrConfiguration)
	}
	if o.Addresses, err = namenodes(conf, authority); err != nil {
		return o, err
	}
	if o.User = os.Getenv("HADOOP_USER_NAME"); o.User == "" {
		u, err := user.Current()
		if err != nil {
			return o, fmt.Errorf("%w: HADOOP_USER_NAME is not set, and the process's user has no name: %w", ErrConfiguration, err)
		}
		o.User = u.Username
	}
	dialer := &net.Dialer{Timeout: dialPatience}
	o.DatanodeDialFunc = dialer.DialContext
	o.NamenodeDialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return answering{c}, nil
	}
	return o, nil
}

// namenodes are the addresses of an authority: a host, with a port or with the usual one, a nameservice
// of Hadoop's configuration, or "", which is whatever that names first.
func namenodes(conf hadoopconf.HadoopConf, authority string) ([]string, error) {
	if authority == "" {
		for _, key := range []string{"fs.defaultFS", "fs.default.name"} {
			if to := conf[key]; Remote(to) {
				if name, _ := split(to); name != "" {
					return namenodes(conf, name)
				}
			}
		}
		return nil, fmt.Errorf("%w: it names no namenode, as in hdfs://namenode:8020/path, and Hadoop's configuration (HADOOP_CONF_DIR) has no fs.defaultFS of HDFS", ErrConfiguration)
	}
	if names := conf["dfs.ha.namenodes."+authority]; names != "" {
		var all []string
		for _, name := range strings.Split(names, ",") {
			if addr := conf["dfs.namenode.rpc-address."+authority+"."+strings.TrimSpace(name)]; addr != "" {
				all = append(all, addr)
			}
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%w: Hadoop's configuration has no dfs.namenode.rpc-address.%s.* for the namenodes %s", ErrConfiguration, authority, names)
		}
		return all, nil
	}
	if _, _, err := net.SplitHostPort(authority); err != nil {
		authority = net.JoinHostPort(strings.Trim(authority, "[]"), namenodePort)
	}
	return []string{authority}, nil
}

// answering is a connection to a namenode, on which every call is one write and the reading of its
// answer. A connection whose answer did not come whole would pass it for the next call's, so it is closed.
type answering struct{ net.Conn }

func (c answering) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(answerPatience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c answering) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		_ = c.Close() // the read's error is the one that counts
	}
	return n, err
}

// Close may be the second one.
func (c answering) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// cluster is one HDFS.
type cluster struct{ *hdfs.Client }

// at is the path within a cluster.
func at(path string) string {
	_, p := split(path)
	return p
}

// said is err with the path as it was written.
func said(path string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &fs.PathError{Op: pathErr.Op, Path: path, Err: pathErr.Err}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (c *cluster) Stat(path string) (fs.FileInfo, error) {
	info, err := c.Client.Stat(at(path))
	if err != nil {
		return nil, said(path, err)
	}
	return info, nil
}

func (c *cluster) Open(path string) (File, error) {
	f, err := c.Client.Open(at(path))
	if err != nil {
		return nil, said(path, err)
	}
	return &reader{f, path}, nil
}

// reader is a file of HDFS.
type reader struct {
	*hdfs.FileReader
	path string
}

func (r *reader) Stat() (fs.FileInfo, error) { return r.FileReader.Stat(), nil }

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.FileReader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = said(r.path, err)
	}
	return n, err
}

func (c *cluster) Create(path string) (io.WriteCloser, error) {
	f, err := c.Client.Create(at(path))
	if err != nil {
		return nil, said(path, err)
	}
	return &writer{f, path}, nil
}

// writer is a new file of HDFS.
type writer struct {
	*hdfs.FileWriter
	path string
}

func (w *writer) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // the client would begin a block that never gets a byte, and the file could not be closed
	}
	n, err := w.FileWriter.Write(p)
	return n, said(w.path, err)
}

// Close waits until the namenode knows of as many copies as it asks for.
func (w *writer) Close() error {
	deadline, pause := time.Now().Add(closePatience), 10*time.Millisecond
	for {
		err := w.FileWriter.Close()
		if !hdfs.IsErrReplicating(err) || time.Now().After(deadline) {
			return said(w.path, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
}

func (c *cluster) ReadDir(path string) ([]fs.FileInfo, error) {
	info, err := c.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: syscall.ENOTDIR}
	}
	all, err := c.Client.ReadDir(at(path))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, said(path, err)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all, nil
}

func (c *cluster) MkdirAll(path string) error { return said(path, c.Client.MkdirAll(at(path), 0o755)) }

func (c *cluster) Rename(from, to string) error {
	if a, b := authority(from), authority(to); a != b {
		return fmt.Errorf("%s and %s lie in two clusters: copy what is to be there", from, to)
	}
	return said(from, c.Client.Rename(at(from), at(to)))
}

func authority(path string) string {
	a, _ := split(path)
	return a
}

func (c *cluster) RemoveAll(path string) error { return said(path, c.Client.RemoveAll(at(path))) }

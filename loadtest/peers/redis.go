package peers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// Redis is a server of this process's own on loopback, in memory only, and one
// connection to it. It is not safe for concurrent use.
type Redis struct {
	cmd *exec.Cmd
	nc  net.Conn
	r   *bufio.Reader
	dir string
	req []byte
}

// StartRedis runs redis-server on a port that is free now.
func StartRedis(ctx context.Context) (_ *Redis, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis: %w", ErrMissing)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().(*net.TCPAddr)
	if err := ln.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "monolith-redis-")
	if err != nil {
		return nil, err
	}
	r := &Redis{dir: dir}
	r.cmd = exec.CommandContext(ctx, path, "--bind", "127.0.0.1", "--port", strconv.Itoa(addr.Port), "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning")
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for tries := 0; ; tries++ {
		if r.nc, err = new(net.Dialer).DialContext(ctx, "tcp", addr.String()); err == nil {
			break
		}
		if tries == 200 || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("redis does not answer at %s: %w", addr, err), r.Close())
		}
		select {
		case <-ctx.Done():
		case <-time.After(25 * time.Millisecond):
		}
	}
	r.r = bufio.NewReaderSize(r.nc, 256<<10)
	return r, nil
}

// Set stores value under each key.
func (r *Redis) Set(keys []int64, value []byte) error {
	const pipeline = 1000
	for len(keys) > 0 {
		n := min(len(keys), pipeline)
		r.req = r.req[:0]
		for _, k := range keys[:n] {
			key := strconv.FormatInt(k, 10)
			r.req = fmt.Appendf(r.req, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
		}
		if err := r.send(); err != nil {
			return err
		}
		for range n {
			if line, err := r.line(); err != nil || string(line) != "+OK" {
				return fmt.Errorf("redis answered SET with %q: %w", line, err)
			}
		}
		keys = keys[n:]
	}
	return nil
}

// MGet reads the values of keys, one after the other, into out.
func (r *Redis) MGet(keys []int64, out []byte) (int, error) {
	r.req = fmt.Appendf(r.req[:0], "*%d\r\n$4\r\nMGET\r\n", len(keys)+1)
	for _, k := range keys {
		var digits [20]byte
		key := strconv.AppendInt(digits[:0], k, 10)
		r.req = append(strconv.AppendInt(append(r.req, '$'), int64(len(key)), 10), "\r\n"...)
		r.req = append(append(r.req, key...), "\r\n"...)
	}
	if err := r.send(); err != nil {
		return 0, err
	}
	line, err := r.line()
	if err != nil || string(line) != "*"+strconv.Itoa(len(keys)) {
		return 0, fmt.Errorf("redis answered MGET with %q: %w", line, err)
	}
	read := 0
	for range keys {
		line, err := r.line()
		if err != nil || len(line) < 2 || line[0] != '$' {
			return read, fmt.Errorf("redis answered MGET with %q: %w", line, err)
		}
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil || n < 0 || n > len(out)-read {
			return read, fmt.Errorf("redis answered MGET with a value of %q bytes", line[1:])
		}
		if _, err := io.ReadFull(r.r, out[read:read+n]); err != nil {
			return read, err
		}
		read += n
		if _, err := r.r.Discard(2); err != nil {
			return read, err
		}
	}
	return read, nil
}

func (r *Redis) send() error {
	if err := r.nc.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	_, err := r.nc.Write(r.req)
	return err
}

func (r *Redis) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// Close ends the server.
func (r *Redis) Close() error {
	var err error
	if r.nc != nil {
		err = r.nc.Close()
	}
	err = errors.Join(err, r.cmd.Process.Signal(os.Interrupt))
	var exit *exec.ExitError
	if werr := r.cmd.Wait(); werr != nil && !errors.As(werr, &exit) {
		err = errors.Join(err, werr)
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

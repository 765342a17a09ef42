// Package auth makes the keys of a deployment: an authority, a certificate and an NKey for each
// role, and a NATS server's configuration under which only the owner of a fact may state it.
package auth

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/monolith-go/monolith/internal/durable"
)

// Config says for whom keys are made.
type Config struct {
	Dir    string        // made; it must not be there
	Hosts  []string      // names and addresses by which the machines are dialled; loopback is always among them
	Listen string        // of the NATS server, host:port
	Valid  time.Duration // of certificates; the authority's is ten times as long
}

// Validate joins every complaint.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("--nats-listen %q: give host:port: %w", c.Listen, err))
	}
	for _, h := range c.Hosts {
		if h == "" || strings.ContainsAny(h, " /:") && net.ParseIP(h) == nil {
			errs = append(errs, fmt.Errorf("--host %q: give a name or an IP address, without a port", h))
		}
	}
	if c.Valid < time.Hour || c.Valid > 10*365*24*time.Hour {
		errs = append(errs, fmt.Errorf("--valid %v: give 1h to 87600h", c.Valid))
	}
	return errors.Join(errs...)
}

// Files of the folder, beside <name>.pem, <name>.key and <name>.nk of everybody in Who.
const (
	CAFile     = "ca.pem"
	caKey      = "ca.key"
	ServerConf = "nats.conf"
	Askers     = "askers"      // names and public keys, for those who answer commands
	UsersConf  = "users.conf"  // the part of it that says who may do what
	server     = "nats-server" // begins the files of the server's own certificate
)

// Init makes the folder with everything in it, or nothing: what a crash leaves behind is a
// folder of another name, .tmp behind it, which is nobody's.
func Init(c Config, now time.Time) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there already: its keys may be in use; name another folder, or remove it", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	ca, err := newAuthority(now, 10*c.Valid)
	if err != nil {
		return err
	}
	users := map[string]string{}
	for _, h := range Who {
		if users[h.Name], err = writeSeed(filepath.Join(tmp, h.Name+".nk")); err != nil {
			return err
		}
		if err := ca.write(tmp, h.Name, c.Hosts, now, c.Valid); err != nil {
			return err
		}
	}
	if err := ca.write(tmp, server, c.Hosts, now, c.Valid); err != nil {
		return err
	}
	if err := ca.writeSelf(tmp); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(tmp, Askers), []byte(askers(users))); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(tmp, UsersConf), []byte(usersConf(users))); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(tmp, ServerConf), []byte(serverConf(dir, c.Listen))); err != nil {
		return err
	}
	if err := durable.SyncDir(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(dir))
}

// writeSeed draws a user's NKey, keeps its seed in the file, and returns its public key.
func writeSeed(path string) (public string, err error) {
	user, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	defer user.Wipe()
	seed, err := user.Seed()
	if err != nil {
		return "", err
	}
	if err := writeSynced(path, append(seed, '\n')); err != nil {
		return "", err
	}
	return user.PublicKey()
}

// writeSynced writes a file for its owner alone.
func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

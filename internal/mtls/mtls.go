// Package mtls makes TLS configurations out of PEM files: of ports, of their clients, and of
// connections between our own processes, where each end shows its certificate and trusts only
// what the given authority has signed. Files that change are read anew.
package mtls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/pflag"
)

// Shared begins the flags of the certificates that all ports of a process show whose own flags
// name none.
const Shared = "tls"

// Files are PEM files. The zero value is none: no encryption.
type Files struct {
	Cert string // certificate chain of this process, leaf first
	Key  string // its private key
	CA   string // authorities that sign the certificates of the other end
}

// Register binds --<prefix>-cert, --<prefix>-key and --<prefix>-ca; what they protect
// ends the sentence "certificate (PEM) for …".
func (f *Files) Register(fs *pflag.FlagSet, prefix, protects string) {
	fs.StringVar(&f.Cert, prefix+"-cert", f.Cert, "`file` with the certificate (PEM) for "+protects+"; read anew when it changes")
	fs.StringVar(&f.Key, prefix+"-key", f.Key, "`file` with its private key (PEM)")
	fs.StringVar(&f.CA, prefix+"-ca", f.CA, "`file` with the authorities (PEM) that sign the certificates of all processes; read anew when it changes")
}

// RegisterPort binds the same flags for a port whose clients may do without certificates: the
// authorities are named where they may not.
func (f *Files) RegisterPort(fs *pflag.FlagSet, prefix, protects string) {
	fs.StringVar(&f.Cert, prefix+"-cert", f.Cert, "`file` with the certificate (PEM) of "+protects+"; read anew when it changes")
	fs.StringVar(&f.Key, prefix+"-key", f.Key, "`file` with its private key (PEM)")
	fs.StringVar(&f.CA, prefix+"-ca", f.CA, "`file` with the authorities (PEM) that sign the certificates which clients must then show; read anew when it changes")
}

// RegisterShared binds --tls-cert, --tls-key and --tls-ca.
func (f *Files) RegisterShared(fs *pflag.FlagSet) {
	f.RegisterPort(fs, Shared, "every port here whose own flags name none")
}

// Args are the flags that hand the same files to a child process, which may work in another
// folder.
func (f Files) Args(prefix string) (args []string) {
	for _, flag := range [][2]string{{"-cert", f.Cert}, {"-key", f.Key}, {"-ca", f.CA}} {
		path := flag[1]
		if path == "" {
			continue
		}
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		args = append(args, "--"+prefix+flag[0], path)
	}
	return args
}

// Or is f, or other where f names no file.
func (f Files) Or(other Files) Files {
	if f == (Files{}) {
		return other
	}
	return f
}

// Load is for both ends of a connection between our own processes; no files at all are a nil
// configuration and no error. Certificate and authorities are read anew when they change, so that
// they may be renewed without a restart: by the end that dials, at each [To].
func (f Files) Load() (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("TLS needs three files: the certificate, its key and the authorities; name all of them, or none")
	}
	k, err := f.Open()
	if err != nil {
		return nil, err
	}
	c := k.server(tls.RequireAndVerifyClientCert)
	c.MinVersion = tls.VersionTLS13
	c.RootCAs = c.ClientCAs
	c.GetClientCertificate = k.show
	return c, nil
}

// To is conf for one connection to address, host:port: the server must show a certificate of that
// host, unless conf names another, by the authorities of this moment where conf is of [Files.Load].
func To(conf *tls.Config, address string) (*tls.Config, error) {
	conf = conf.Clone()
	if conf.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		conf.ServerName = host
	}
	if conf.GetConfigForClient == nil || conf.RootCAs == nil || conf.RootCAs != conf.ClientCAs {
		return conf, nil
	}
	// Both ends trust the same authorities, and the one that listens reads them anew.
	now, err := conf.GetConfigForClient(nil)
	if err != nil {
		return nil, err
	}
	if now != nil {
		conf.RootCAs = now.ClientCAs
	}
	return conf, nil
}

// Server is for a port with clients of any make: a certificate of one of the authorities is
// asked of them as auth says, and of nobody where no authorities are named. No files at all
// are a nil configuration and no error.
func (f Files) Server(auth tls.ClientAuthType) (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("the TLS of a port needs two files: its certificate and the key; the authorities of its clients alone are not enough")
	}
	k, err := f.Open()
	if err != nil {
		return nil, err
	}
	if f.CA == "" {
		auth = tls.NoClientCert
	}
	return k.server(auth), nil
}

// Client is for whoever dials a port of others: it trusts the authorities, or the system's
// where none are named, and shows the certificate if there is one.
func (f Files) Client() (*tls.Config, error) {
	k, err := f.Open()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.RootCAs, err = k.Authorities(); err != nil {
		return nil, err
	}
	if f.Cert != "" {
		c.GetClientCertificate = k.show
	}
	return c, nil
}

// Twin is for a process that dials its own child, which was given the same files: nothing but
// their certificate is trusted, whatever address the child is dialled at.
func (f Files) Twin() (*tls.Config, error) {
	k, err := f.Open()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		InsecureSkipVerify:   true, // in favour of the stricter check below
		GetClientCertificate: k.show,
		VerifyConnection: func(s tls.ConnectionState) error {
			own, err := k.Certificate()
			if err != nil {
				return err
			}
			if len(s.PeerCertificates) == 0 || !bytes.Equal(s.PeerCertificates[0].Raw, own.Certificate[0]) {
				return fmt.Errorf("the server shows another certificate than %s", f.Cert)
			}
			return nil
		},
	}, nil
}

// Keys are what was read of Files, read anew when they change.
type Keys struct {
	files Files
	cert  *watched[*tls.Certificate]
	roots *watched[*x509.CertPool]
}

// Open reads the files that are named, and complains of what is wrong with them.
func (f Files) Open() (*Keys, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate and its key go together: name both files, or none")
	}
	k := &Keys{files: f}
	k.cert = &watched[*tls.Certificate]{path: f.Cert, read: func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		return &c, err
	}}
	k.roots = &watched[*x509.CertPool]{path: f.CA, read: func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", f.CA)
		}
		return pool, nil
	}}
	if f.Cert != "" {
		if _, err := k.Certificate(); err != nil {
			return nil, err
		}
	}
	_, err := k.Authorities()
	return k, err
}

// Certificate is the newest one that could be read.
func (k *Keys) Certificate() (*tls.Certificate, error) {
	if k.files.Cert == "" {
		return nil, errors.New("there is no certificate to show: name it and its key")
	}
	c, err := k.cert.current()
	if err != nil {
		return nil, fmt.Errorf("load the certificate %s with the key %s: %w", k.files.Cert, k.files.Key, err)
	}
	return c, nil
}

// Authorities are the newest ones that could be read; nil: the system's.
func (k *Keys) Authorities() (*x509.CertPool, error) {
	if k.files.CA == "" {
		return nil, nil
	}
	return k.roots.current()
}

func (k *Keys) show(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.Certificate() }

// server is the configuration of a port. A connection meets the authorities of its own time.
func (k *Keys) server(auth tls.ClientAuthType) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: auth,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return k.Certificate() }}
	if k.files.CA == "" {
		return c
	}
	first, _ := k.Authorities() // Open has read them
	c.ClientCAs = first
	var mu sync.Mutex
	var newest *tls.Config // with other authorities than the first; guarded by mu
	base := c.Clone
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := k.Authorities()
		if err != nil || now == first {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if newest == nil || newest.ClientCAs != now {
			newest = base()
			newest.ClientCAs, newest.GetConfigForClient = now, nil
		}
		return newest, nil
	}
	return c
}

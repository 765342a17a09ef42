// Package mtls makes one TLS configuration out of three files, for both ends of a
// connection between our own processes: each shows its certificate, and trusts only what
// the given authority has signed.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
)

// Files are PEM files. Either all are named or none.
type Files struct {
	Cert string // certificate chain of this process, leaf first
	Key  string // its private key
	CA   string // authorities that sign the certificates of all processes
}

// Register binds --<prefix>-cert, --<prefix>-key and --<prefix>-ca; what they protect
// ends the sentence "certificate (PEM) for …".
func (f *Files) Register(fs *pflag.FlagSet, prefix, protects string) {
	fs.StringVar(&f.Cert, prefix+"-cert", f.Cert, "`file` with the certificate (PEM) for "+protects+"; read anew when it changes")
	fs.StringVar(&f.Key, prefix+"-key", f.Key, "`file` with its private key (PEM)")
	fs.StringVar(&f.CA, prefix+"-ca", f.CA, "`file` with the authorities (PEM) that sign the certificates of all processes")
}

// Args are the flags that hand the same files to a child process.
func (f Files) Args(prefix string) []string {
	if f == (Files{}) {
		return nil
	}
	return []string{"--" + prefix + "-cert", f.Cert, "--" + prefix + "-key", f.Key, "--" + prefix + "-ca", f.CA}
}

// Load reads the files; no files at all are a nil configuration and no error. The
// certificate is read again at most once a second when its file has changed, so that it
// may be renewed without a restart; the authorities are not.
func (f Files) Load() (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	if f.Cert == "" || f.Key == "" || f.CA == "" {
		return nil, errors.New("TLS needs three files: the certificate, its key and the authorities; name all of them, or none")
	}
	authorities, err := f.authorities()
	if err != nil {
		return nil, err
	}
	k := &keeper{files: f}
	if _, err := k.current(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    authorities,
		ClientCAs:  authorities,
		ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return k.current()
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return k.current()
		},
	}, nil
}

// Client is the configuration of a client of servers that are not ours: with authorities, and a
// certificate of its own where one is named. No files at all are nil.
func (f Files) Client() (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	if f.CA == "" || (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("TLS needs the authorities and, where a certificate is shown, that and its key")
	}
	authorities, err := f.authorities()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}
	if f.Cert == "" {
		return c, nil
	}
	k := &keeper{files: f}
	if _, err := k.current(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.current() }
	return c, nil
}

func (f Files) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", f.CA)
	}
	return authorities, nil
}

// keeper has the newest certificate that could be read.
type keeper struct {
	files Files

	mu      sync.Mutex
	looked  time.Time
	changed time.Time // of the certificate's file
	cert    *tls.Certificate
}

// current keeps the old certificate while the new one cannot be read: key and
// certificate are renewed one after the other.
func (k *keeper) current() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.cert != nil && now.Sub(k.looked) < time.Second {
		return k.cert, nil
	}
	k.looked = now
	st, err := os.Stat(k.files.Cert)
	if err == nil && k.cert != nil && st.ModTime().Equal(k.changed) {
		return k.cert, nil
	}
	if err == nil {
		var c tls.Certificate
		if c, err = tls.LoadX509KeyPair(k.files.Cert, k.files.Key); err == nil {
			k.cert, k.changed = &c, st.ModTime()
		}
	}
	if k.cert != nil {
		return k.cert, nil
	}
	return nil, fmt.Errorf("load the certificate %s with the key %s: %w", k.files.Cert, k.files.Key, err)
}

package modelserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

// newTLS reads an SSLConfig, whose fields hold the PEM itself; nil: the gRPC port is not encrypted.
func newTLS(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	config := &config_go_proto.SSLConfig{}
	if raw, err := readText("--ssl-config-file", file, config); err != nil {
		if raw != nil { // the reason may quote a key
			err = fmt.Errorf("--ssl-config-file: %s is no SSLConfig in text form; write server_key, server_cert, custom_ca and client_verify", file)
		}
		return nil, err
	}
	wrong := func(format string, args ...any) (*tls.Config, error) {
		return nil, fmt.Errorf("--ssl-config-file: "+file+": "+format, args...)
	}
	cert, err := tls.X509KeyPair([]byte(config.GetServerCert()), []byte(config.GetServerKey()))
	if err != nil {
		return wrong("server_cert and server_key are no certificate and its key in PEM: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if config.GetCustomCa() != "" {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM([]byte(config.GetCustomCa())) {
			return wrong("custom_ca holds no certificate in PEM")
		}
	}
	if config.GetClientVerify() {
		if c.ClientCAs == nil {
			return wrong("client_verify needs the authority that signs the clients' certificates; name it in custom_ca")
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

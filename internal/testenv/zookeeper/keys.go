package zookeeper

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"

	"github.com/monolith-go/monolith/internal/mtls"
)

// writeKeys writes key and certificate into one file: Java reads keys in PKCS #8 only.
func writeKeys(path string, files mtls.Files) error {
	raw, err := os.ReadFile(files.Key)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return fmt.Errorf("%s holds no key in PEM", files.Key)
	}
	if block.Type == "EC PRIVATE KEY" {
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil {
			return fmt.Errorf("read the key %s: %w", files.Key, err)
		}
		if block.Bytes, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return err
		}
		block.Type = "PRIVATE KEY"
	}
	cert, err := os.ReadFile(files.Cert)
	if err != nil {
		return err
	}
	return os.WriteFile(path, slices.Concat(pem.EncodeToMemory(block), cert), 0o600)
}

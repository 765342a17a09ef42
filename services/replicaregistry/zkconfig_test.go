package replicaregistry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/testenv/oracle"
)

// Whoever shows the super digest reads, changes and removes what nobody else may.
func TestZKSuperDigestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "super")
	write := func(digest string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(digest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n")
	h := openHarness(t, Config{ZK: ZKPort{SuperDigestFile: path}})
	c := oracle.ZKClient(t, h.ZKAddr(), nil)
	if _, err := c.Create("/lost", []byte("x"), 0, []zk.ACL{{Perms: zk.PermAll, Scheme: "digest", ID: "nobody:x"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.AddAuth("digest", []byte("super:wrong")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Get("/lost"); err != zk.ErrNoAuth {
		t.Errorf("a wrong password: %v", err)
	}
	if err := c.AddAuth("digest", []byte("super:test")); err != nil {
		t.Fatal(err)
	}
	if data, _, err := c.Get("/lost"); err != nil || string(data) != "x" {
		t.Errorf("get: %q %v", data, err)
	}
	if err := c.Delete("/lost", -1); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.Set("/zookeeper/config", []byte("c"), -1); err != nil {
		t.Errorf("config: %v", err)
	}
	for _, wrong := range []string{"", "super", "super:test", ":D/InIHSb7yEEbrWz8b9l71RjZJU=", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\nother:x"} {
		write(wrong)
		if _, err := (ZKPort{SuperDigestFile: path}).server("", mtls.Files{}); err == nil || !strings.Contains(err.Error(), "--zk-super-digest-file") {
			t.Errorf("%q is taken for a digest: %v", wrong, err)
		}
	}
	if _, err := (ZKPort{SuperDigestFile: path + "-none"}).server("", mtls.Files{}); err == nil {
		t.Error("a file that is not there")
	}
	if errs := (&ZKPort{MaxWaitingBytes: 100}).validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "--zk-max-waiting-bytes") {
		t.Errorf("%v", errs)
	}
}

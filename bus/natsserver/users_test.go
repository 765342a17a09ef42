package natsserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus/natsserver"
)

// A file of users holds nothing else, and whoever is not in it does not get in.
func TestUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.conf")
	for text, want := range map[string]string{
		"port: 4222\nauthorization { users: [{user: a, password: b}] }": `says "port"`,
		"authorization { }": "names no users",
		"authorization {":   "read the users",
		"":                  "read the users",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := natsserver.Start(natsserver.Config{Dir: t.TempDir(), Users: path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	text := `authorization { users: [{user: a, password: b, permissions: {publish: {allow: ["x"]}}}] }`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, natsserver.Config{Dir: t.TempDir(), Users: path})
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Error("somebody without a name is let in")
	}
	nc, err := nats.Connect(s.URL(), nats.UserInfo("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

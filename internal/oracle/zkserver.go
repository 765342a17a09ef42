package oracle

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Wipe removes the data of a killed ZooKeeper server: restarted, it knows nothing.
func (p *Process) Wipe(t testing.TB) {
	t.Helper()
	conf := p.cmd.Args[len(p.cmd.Args)-1]
	if err := os.RemoveAll(filepath.Join(filepath.Dir(conf), "version-2")); err != nil {
		t.Fatal(err)
	}
}

// FourLetters asks a ZooKeeper server one of its words; "" when it does not answer.
func FourLetters(t testing.TB, addr, word string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(word)); err != nil {
		return ""
	}
	said, _ := io.ReadAll(c) // what came before an error counts
	return string(said)
}

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/projections/fleet"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// TestUpListens runs a whole stack on an address of its own, under one certificate: it learns,
// serves and is told of there alone, and answers nobody who shows no certificate.
func TestUpListens(t *testing.T) {
	const address = "127.0.0.2"
	authority := certs.NewAuthority(t)
	before := listening(t)
	cfg := opsConfig(t.TempDir())
	cfg.Shards, cfg.Replicas, cfg.Trainers = 1, 1, 1
	cfg.Ports.Listen, cfg.Ports.TLS = address, authority.Issue("up")
	w := opsServe(t, cfg)
	for addr := range listening(t) {
		if host, _, _ := net.SplitHostPort(addr); !before[addr] && host != address {
			t.Errorf("the stack listens on %s", addr)
		}
	}
	var told []string
	w.job.Fleet.Read(func(f fleet.State) {
		for _, c := range f.Containers {
			told = append(told, c.Container.V.GetGrpcAddress(), c.Container.V.GetHttpAddress(), c.Container.V.GetRowsAddress())
		}
	})
	told = append(slices.DeleteFunc(told, func(addr string) bool { return addr == "" }), w.Config.Kafka, w.StatusAddr(), strings.TrimPrefix(w.Config.Logs.NATS, "tls://"))
	for _, addr := range told {
		if !strings.HasPrefix(addr, address+":") {
			t.Errorf("others are told %s", addr)
		}
	}
	if len(told) < 8 {
		t.Errorf("others are told %q alone", told)
	}
	mine, err := authority.Issue("client").Client()
	if err != nil {
		t.Fatal(err)
	}
	silent := &tls.Config{RootCAs: mine.RootCAs}
	ask := func(conf *tls.Config) error {
		c, err := grpc.NewClient(w.entry, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = tfserving.NewModelClient(c).GetModelStatus(w.soon(), &apis.GetModelStatusRequest{ModelSpec: &apis.ModelSpec{Name: host.ModelName + ":entry"}})
		return err
	}
	if err := ask(mine); err != nil {
		t.Errorf("a client of the authority: %v", err)
	}
	if err := ask(silent); status.Code(err) != codes.Unavailable {
		t.Errorf("a client without a certificate: %v", err)
	}
	get := func(conf *tls.Config, url string) (int, error) {
		road := &http.Transport{TLSClientConfig: conf}
		defer road.CloseIdleConnections()
		q, err := http.NewRequestWithContext(w.soon(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: road}).Do(q)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	for _, url := range []string{"https://" + w.StatusAddr() + "/readyz", fmt.Sprintf("https://%s:%d/v1/models/%s:entry", address, w.Config.RESTPort, host.ModelName)} {
		if code, err := get(mine, url); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d, %v", url, code, err)
		}
		if code, err := get(silent, url); err == nil {
			t.Errorf("%s answers %d without a certificate", url, code)
		}
	}
}

// listening are the TCP addresses on which this process listens.
func listening(t *testing.T) map[string]bool {
	t.Helper()
	own := map[string]bool{} // sockets, by inode
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if at, err := os.Readlink(fd); err == nil { // it may be closed by now
			own[strings.TrimSuffix(strings.TrimPrefix(at, "socket:["), "]")] = true
		}
	}
	addrs := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listen = "0A"
			if field := strings.Fields(lines.Text()); len(field) > 9 && field[3] == listen && own[field[9]] {
				addrs[address(t, field[1])] = true
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return addrs
}

// address reads one of Linux's table: words of an IP in the machine's order, and a port.
func address(t *testing.T, s string) string {
	t.Helper()
	ip, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(ip)
	n, perr := strconv.ParseUint(port, 16, 16)
	if err != nil || perr != nil {
		t.Fatalf("address %q: %v, %v", s, err, perr)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	return net.JoinHostPort(net.IP(raw).String(), strconv.FormatUint(n, 10))
}

package host

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/testenv/certs"
)

// Beyond loopback each port of a stack wants keys, or leave by its own name.
func TestListeningBeyondThisMachine(t *testing.T) {
	files := certs.NewAuthority(t).Issue("up")
	keys := []string{"--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA}
	insecure := []string{"--insecure-nats", "--insecure-kafka", "--insecure-zk", "--insecure-agent", "--insecure-grpc", "--insecure-rest", "--insecure-rows"}
	for name, tc := range map[string]struct {
		args []string
		want []string // in the refusal; none: it passes
	}{
		"loopback":             {nil, nil},
		"another loopback":     {[]string{"--listen", "127.0.0.2"}, nil},
		"nothing protects":     {[]string{"--listen", "10.0.0.7"}, insecure},
		"leave for all":        {append([]string{"--listen", "10.0.0.7"}, insecure...), nil},
		"one is left out":      {append([]string{"--listen", "10.0.0.7"}, insecure[1:]...), []string{"--insecure-nats"}},
		"NATS elsewhere":       {append([]string{"--listen", "10.0.0.7", "--nats", "nats://10.0.0.8:4222"}, insecure[1:]...), nil},
		"keys, Kafka":          {append([]string{"--listen", "10.0.0.7"}, keys...), []string{"--insecure-kafka"}},
		"keys, no Kafka":       {append([]string{"--listen", "10.0.0.7", "--kafka", "10.0.0.8:9092"}, keys...), nil},
		"keys, half of them":   {append([]string{"--listen", "10.0.0.7"}, keys[:4]...), []string{"--tls-ca"}},
		"keys that are not":    {[]string{"--tls-cert", "/none", "--tls-key", "/none", "--tls-ca", files.CA}, []string{"/none"}},
		"every address":        {append([]string{"--listen", "0.0.0.0"}, insecure...), []string{"--listen"}},
		"a name":               {append([]string{"--listen", "host.example"}, insecure...), []string{"--listen"}},
		"another's leave only": {[]string{"--listen", "10.0.0.7", "--insecure-status"}, insecure},
	} {
		var cfg Config
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		cfg.Register(fs, t.TempDir())
		cfg.RegisterPorts(fs)
		if err := fs.Parse(tc.args); err != nil {
			t.Fatal(err)
		}
		err := cfg.Validate()
		if (err == nil) != (len(tc.want) == 0) || err != nil && !errors.Is(err, flags.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range tc.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %s", name, err, want)
			}
		}
	}
}

// What `up` was told of its ports is told to every role, as flags of a process likewise, and
// the banner names the same addresses.
func TestRolesListenWhereTheStackDoes(t *testing.T) {
	cfg := small(t)
	cfg.Kafka = "127.0.0.3:9092"
	fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
	cfg.Ports.register(fs)
	cfg.RegisterPorts(fs)
	files := certs.NewAuthority(t).Issue("up")
	if err := fs.Parse([]string{"--listen", "127.0.0.2", "--insecure-rest", "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA}); err != nil {
		t.Fatal(err)
	}
	s := &Stack{Config: cfg, status: &statusServer{scheme: "https", addr: "127.0.0.2:1"}}
	for _, task := range s.plan() {
		args, err := s.childArgs("monolith", task, "status.json")
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(args, " ")
		if strings.Contains(line, "127.0.0.1") || !strings.Contains(line, "--tls-cert "+files.Cert) || !strings.Contains(line, "--status 127.0.0.2:0") {
			t.Errorf("%s is started with %s", task.Name, line)
		}
		if serves := task.Role == "tfs-supervisor"; serves && !(slices.Contains(task.Server, "--insecure-rest") && !slices.Contains(task.Server, "--insecure-grpc")) {
			t.Errorf("%s starts its server with %q", task.Name, task.Server)
		}
		if r, err := roleNamed(task.Role); err != nil {
			t.Error(err)
		} else if _, err := parse(r, task.Args); err != nil {
			t.Errorf("%s takes no such flags: %v", task.Name, err)
		}
	}
	var banner bytes.Buffer
	s.banner(&banner, 0)
	if text := banner.String(); strings.Contains(text, "127.0.0.1") || !strings.Contains(text, "http://127.0.0.2:") || strings.Contains(text, "https://127.0.0.2:0/v1") {
		t.Errorf("the banner says %s", text)
	}
}

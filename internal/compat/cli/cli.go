// Package cli is the original's command lines: agent-client, agent-controller, client and
// svr-client, with the original's flags. What they read and write is the system behind
// --nats, or, as the original did, a ZooKeeper behind --zk_servers.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/compat/cli/tfsclient"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Commands are agent-client, agent-controller, client, svr-client and tfs-client.
func Commands() []*cobra.Command {
	return []*cobra.Command{newAgentClient(), newAgentController(), newClient(), newSvrClient(), tfsclient.Command()}
}

// taskName is {type}:{task}.
var taskName = regexp.MustCompile(`^(\w+):(\d+)$`)

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// compat is what these commands share.
type compat struct {
	conn    connect.Config
	zk      string
	exact   bool // --compat
	asJSON  bool
	model   string
	follow  bool // of load
	out     io.Writer
	bzidSet bool
}

// register binds the shared flags, in the original's spelling; hyphens do as well.
func (c *compat) register(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
	})
	c.conn.Register(fs)
	fs.StringVar(&c.zk, "zk_servers", "", "`host:port,...` of a ZooKeeper to use in place of NATS: our port or a real ensemble")
	fs.StringVar(&c.model, "model_name", "", "model")
	fs.BoolVar(&c.exact, "compat", false, "print the original's exact text")
	fs.BoolVar(&c.asJSON, "json", false, "print JSON")
}

// begin is called once the flags are parsed.
func (c *compat) begin(cmd *cobra.Command) error {
	c.out, c.bzidSet = cmd.OutOrStdout(), cmd.Flags().Changed("bzid")
	if c.exact && c.asJSON {
		return fmt.Errorf("%w: --compat and --json exclude each other", flags.ErrUsage)
	}
	return nil
}

// oneOf refuses what is not among an enum flag's values.
func oneOf(flag, value string, all ...string) error {
	if slices.Contains(all, value) {
		return nil
	}
	return fmt.Errorf("%w: --%s %q is none of %s", flags.ErrUsage, flag, value, strings.Join(all, ", "))
}

// begun is a command's RunE: run, once c knows what the flags mean.
func (c *compat) begun(run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := c.begin(cmd); err != nil {
			return err
		}
		return run(cmd.Context())
	}
}

// askedService is what the flags say of an agent service, and of whom it is asked.
type askedService struct {
	serverType, target string
	port, task         int
	keys               mtls.Files // none: plain text
}

func (a *askedService) register(fs *pflag.FlagSet) {
	fs.StringVar(&a.serverType, "server_type", "ps", "ps, entry or dense")
	fs.IntVar(&a.task, "task", 0, "task of gr")
	fs.IntVar(&a.port, "port", 0, "port of the agent service; 0: that of --conf, or PORT2")
	fs.StringVar(&a.target, "target", "", "`host:port` of the agent service")
	fs.StringVar(&a.keys.CA, "tls_ca", "", "`file` with the authorities (PEM) of the agent service, which then is asked over TLS")
	fs.StringVar(&a.keys.Cert, "tls_cert", "", "`file` with the certificate (PEM) that it is shown")
	fs.StringVar(&a.keys.Key, "tls_key", "", "`file` with its private key (PEM)")
}

// needModel refuses a command without its model.
func (c *compat) needModel() error {
	if c.model == "" {
		return fmt.Errorf("%w: name the model with --model_name", flags.ErrUsage)
	}
	return nil
}

// print writes JSON where --json asks for it, the original's text where --compat does,
// and what people read otherwise. A nil form falls back on human.
func (c *compat) print(v any, exact, human func(io.Writer) error) error {
	switch {
	case c.asJSON:
		e := json.NewEncoder(c.out)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case c.exact && exact != nil:
		return exact(c.out)
	}
	return human(c.out)
}

// silentText is the exact form of commands that print nothing.
func silentText(io.Writer) error { return nil }

func line(format string, args ...any) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	}
}

// read opens the tree: of ZooKeeper, or folded from the log.
func (c *compat) read(ctx context.Context) (tree, error) {
	if c.zk != "" {
		t, err := dialZK(ctx, c.zk)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	b, err := c.conn.Dial(ctx, "monolith compat")
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }()
	return foldTree(ctx, b, c.conn.BZID)
}

// call asks a command of the system and decodes its answer into reply, which may be nil.
func (c *compat) call(ctx context.Context, command string, body, reply any) error {
	b, err := c.conn.Dial(ctx, "monolith compat")
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	return callOn(ctx, b, c.conn.BZID, command, body, reply)
}

func callOn(ctx context.Context, b bus.Bus, bzid, command string, body, reply any) error {
	payload, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	data, err := b.Commands().Call(ctx, bzid, command, payload)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if reply == nil {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(reply); err != nil {
		return fmt.Errorf("%s: its answer %q is not understood: %w", command, data, err)
	}
	return nil
}

// stored is the answer of commands that append a fact.
type stored struct {
	Seq json.Number `json:"seq"`
}

// agentTarget is the agent service's address: --target, or the host that MY_HOST_IP
// names (this machine without it) at --port, agent.conf's agent_port or PORT2.
func agentTarget(target string, port int, conf agentconf.Config) (string, error) {
	if target != "" {
		return target, nil
	}
	p := os.Getenv("PORT2")
	if port = cmp.Or(port, conf.AgentPort); port != 0 {
		p = strconv.Itoa(port)
	}
	if p == "" {
		return "", fmt.Errorf("%w: name the agent service with --port or --target (or agent_port in --conf, or PORT2)", flags.ErrUsage)
	}
	return net.JoinHostPort(flags.Env("MY_HOST_IP", "127.0.0.1"), p), nil
}

// askAgent asks the agent service at target.
func (a *askedService) askAgent(ctx context.Context, target string, ask func(context.Context, agentpb.AgentServiceClient) error) error {
	creds := insecure.NewCredentials()
	if a.keys != (mtls.Files{}) {
		conf, err := a.keys.Client()
		if err != nil {
			return fmt.Errorf("%w: --tls_ca, --tls_cert and --tls_key: %w", flags.ErrUsage, err)
		}
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return fmt.Errorf("agent service at %s: %w", target, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := ask(ctx, agentpb.NewAgentServiceClient(conn)); err != nil {
		return fmt.Errorf("agent service at %s: %w", target, err)
	}
	return nil
}

var serverTypes = map[string]agentpb.ServerType{"ps": agentpb.ServerType_PS, "entry": agentpb.ServerType_ENTRY, "dense": agentpb.ServerType_DENSE}

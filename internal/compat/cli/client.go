package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/compat/agentdata"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// notFoundError is the refusal of what asks for something that is not there.
type notFoundError struct{ text string }

func (e notFoundError) Error() string { return e.text }

func isNotFound(err error) bool {
	var mine notFoundError
	var refusal *bus.CommandError
	return errors.As(err, &mine) || (errors.As(err, &refusal) && refusal.Code == bus.CodeNotFound)
}

// servingClient is the original's client.
type servingClient struct {
	compat
	cmdType, modelDir, ckpt      string
	numShard                     int
	target, inputType, inputFile string // taken and unused, as by the original
}

func newClient() *cobra.Command {
	var c servingClient
	cmd := &cobra.Command{
		Use:   "client",
		Short: "The original's client: load, unload, status",
		Long:  "Loads and unloads a model, and shows how far it has come, with the original's flags.",
		Example: "  monolith client --cmd_type=load --model_name=m1 --model_dir=/d/m1/exported_models\n" +
			"  monolith client --cmd_type=status --model_name=m1",
		Args: flags.NoArgs,
	}
	fs := cmd.Flags()
	c.register(fs)
	fs.StringVar(&c.cmdType, "cmd_type", "status", "load, unload or status")
	fs.StringVar(&c.modelDir, "model_dir", "", "exported_models folder of load")
	fs.StringVar(&c.ckpt, "ckpt", "", "checkpoint of load")
	fs.IntVar(&c.numShard, "num_shard", -1, "serving shards of load; -1: as exported")
	fs.BoolVar(&c.follow, "follow", false, "of load: plan each newer version too, as soon as it is whole")
	fs.StringVar(&c.target, "target", "", "taken for the original's sake")
	fs.StringVar(&c.inputType, "input_type", "dump", "taken for the original's sake")
	fs.StringVar(&c.inputFile, "input_file", "", "taken for the original's sake")
	cmd.RunE = c.begun(func(ctx context.Context) error {
		if err := c.needModel(); err != nil {
			return err
		}
		return c.run(ctx)
	})
	return cmd
}

func (c *servingClient) run(ctx context.Context) error {
	switch c.cmdType {
	case "load":
		if c.modelDir == "" {
			return fmt.Errorf("%w: name the exported_models folder with --model_dir", flags.ErrUsage)
		}
		t, err := c.read(ctx)
		if err != nil {
			return err
		}
		_, there, err := t.get("/" + c.conn.BZID + "/portal/" + c.model)
		t.close()
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("%s has exists", c.model) // the original's words
		}
		return c.loadModel(ctx, c.modelDir, c.ckpt, c.numShard)
	case "unload":
		err := c.unloadModel(ctx)
		if c.exact && err != nil && isNotFound(err) {
			return nil // the original warns in its log
		}
		return err
	}
	// The original shows the status on any other word of its list.
	if err := oneOf("cmd_type", c.cmdType, "status", "hb", "gr", "addr", "get", "clean", "meta", "profile"); err != nil {
		return err
	}
	return c.status(ctx)
}

// loadState is how far a model has come.
type loadState struct {
	Portal  bool             `json:"portal"`
	Publish bool             `json:"publish"`
	Service map[string]int32 `json:"service"` // {type}:{task}:{replica} -> state
}

func (c *servingClient) status(ctx context.Context) error {
	t, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	s := loadState{Service: map[string]int32{}}
	if _, s.Portal, err = t.get("/" + c.conn.BZID + "/portal/" + c.model); err != nil {
		return err
	}
	published, _, err := t.children("/" + c.conn.BZID + "/publish")
	if err != nil {
		return err
	}
	for _, name := range published {
		_, _, model, ok := agentdata.ParsePublish("/" + name)
		s.Publish = s.Publish || ok && model == c.model
	}
	found, _, err := replicaNodes(t, c.conn.BZID, c.model)
	if err != nil {
		return err
	}
	root := "/" + c.conn.BZID + "/service/" + c.model + "/"
	var keys []string
	for _, n := range found {
		key := strings.ReplaceAll(strings.TrimPrefix(n.path, root), "/", ":")
		keys = append(keys, key)
		s.Service[key] = n.meta.Stat
	}
	slices.Sort(keys)
	return c.print(s, func(w io.Writer) error {
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = fmt.Sprintf("%s: %d", pyString(k), s.Service[k])
		}
		return line("LoadSate(portal=%s, publish=%s, service={%s})", pyBool(s.Portal), pyBool(s.Publish), strings.Join(parts, ", "))(w)
	}, func(w io.Writer) error {
		yes := map[bool]string{true: "yes", false: "no"}
		fmt.Fprintf(w, "asked for   %s\nplanned     %s\n", yes[s.Portal], yes[s.Publish])
		for _, k := range keys {
			fmt.Fprintf(w, "%-11s %s\n", k, replica.State(s.Service[k]))
		}
		if len(keys) == 0 {
			return line("served      by nobody")(w)
		}
		return nil
	})
}

// svrClient is the original's svr_client, a helper that its own tools called.
type svrClient struct {
	compat
	askedService
	confFile, cmdType string
}

func newSvrClient() *cobra.Command {
	var c svrClient
	cmd := &cobra.Command{
		Use:     "svr-client",
		Short:   "The original's svr_client: hb, gr",
		Long:    "Asks an agent service for the addresses it knows, with the original's flags.",
		Example: "  monolith svr-client --cmd_type=gr --server_type=ps --task=0 --model_name=m1 --port=4002",
		Args:    flags.NoArgs,
	}
	fs := cmd.Flags()
	c.compat.register(fs)
	c.askedService.register(fs)
	fs.StringVar(&c.confFile, "conf", "", "agent.conf `file`")
	fs.StringVar(&c.cmdType, "cmd_type", "hb", "hb or gr")
	cmd.RunE = c.begun(c.run)
	return cmd
}

func (c *svrClient) run(ctx context.Context) error {
	if err := oneOf("cmd_type", c.cmdType, "hb", "gr"); err != nil {
		return err
	}
	conf, err := agentconf.Read(c.confFile)
	if err != nil {
		return err
	}
	a := agentClient{compat: c.compat, askedService: c.askedService, conf: conf, cmdType: c.cmdType}
	if err := oneOf("server_type", c.serverType, "ps", "entry", "dense"); err != nil {
		return err
	}
	if !c.exact {
		if c.cmdType == "hb" {
			return a.heartBeat(ctx)
		}
		return a.getReplicas(ctx)
	}
	target, err := agentTarget(c.target, c.port, conf)
	if err != nil {
		return err
	}
	return c.askAgent(ctx, target, func(ctx context.Context, a agentpb.AgentServiceClient) error {
		kind := serverTypes[c.serverType]
		if c.cmdType == "gr" {
			got, err := a.GetReplicas(ctx, &agentpb.GetReplicasRequest{ServerType: kind, Task: int32(c.task), ModelName: c.model})
			if err != nil {
				return err
			}
			return line("%s", pyList(got.GetAddressList().GetAddress()))(c.out)
		}
		got, err := a.HeartBeat(ctx, &agentpb.HeartBeatRequest{ServerType: kind})
		if err != nil {
			return err
		}
		var keys []string
		for k := range got.GetAddresses() {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for i, k := range keys {
			text := ""
			for _, l := range textAddresses(got.GetAddresses()[k]) {
				text += l + "\n"
			}
			keys[i] = pyString(k) + ": " + text
		}
		return line("{%s}", strings.Join(keys, ", "))(c.out)
	})
}

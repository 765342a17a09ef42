package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/monolith-go/monolith/internal/wire/znodedata"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/compat/agentpb"
	"github.com/monolith-go/monolith/internal/compat/modelinfo"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// agentClient is the original's agent_client.
type agentClient struct {
	compat
	askedService
	conf                    agentconf.Config
	confFile, cmdType, what string
	numShard                int
	modelDir, ckpt          string
	inputType, inputFile    string // taken and unused, as by the original
}

func newAgentClient() *cobra.Command {
	var c agentClient
	cmd := &cobra.Command{
		Use:   "agent-client",
		Short: "The original's agent_client: hb, gr, addr, get, load, unload, clean",
		Long: "Asks an agent service (hb, gr), shows what is in the tree (addr, get), and loads, unloads\n" +
			"and cleans, with the original's flags. Text is for people; --compat prints the original's.",
		Example: "  monolith agent-client --cmd_type=hb --server_type=ps --port=4002\n" +
			"  monolith agent-client --cmd_type=get --args=pub --bzid=demo\n" +
			"  monolith agent-client --cmd_type=load --model_name=m1 --model_dir=/d/m1/exported_models",
		Args: flags.NoArgs,
	}
	fs := cmd.Flags()
	c.compat.register(fs)
	c.askedService.register(fs)
	fs.StringVar(&c.confFile, "conf", "", "agent.conf `file`: bzid, base_name, zk_servers and agent_port are taken from it")
	fs.StringVar(&c.cmdType, "cmd_type", "hb", "hb, gr, addr, get, load, unload or clean")
	fs.StringVar(&c.what, "args", "addr", "of get and clean: addr, portal, pub, res, lock, elect or info")
	fs.StringVar(&c.modelDir, "model_dir", "", "exported_models folder of load and info")
	fs.StringVar(&c.ckpt, "ckpt", "", "checkpoint of load and info")
	fs.IntVar(&c.numShard, "num_shard", -1, "serving shards of load; -1: as exported")
	fs.BoolVar(&c.follow, "follow", false, "of load: plan each newer version too, as soon as it is whole")
	fs.StringVar(&c.inputType, "input_type", "dump", "taken for the original's sake")
	fs.StringVar(&c.inputFile, "input_file", "", "taken for the original's sake")
	cmd.RunE = c.begun(c.run)
	return cmd
}

func (c *agentClient) run(ctx context.Context) (err error) {
	if c.conf, err = agentconf.Read(c.confFile); err != nil {
		return err
	}
	// The file's name counts before the flag's, as in the original.
	c.model = cmp.Or(c.conf.BaseName, c.model)
	c.zk = cmp.Or(c.zk, c.conf.ZKServers)
	if !c.bzidSet {
		c.conn.BZID = cmp.Or(c.conf.BZID, c.conn.BZID)
	}
	if err := oneOf("server_type", c.serverType, "ps", "entry", "dense"); err != nil {
		return err
	}
	if err := oneOf("args", c.what, "addr", "portal", "pub", "res", "lock", "elect", "info"); err != nil {
		return err
	}
	switch c.cmdType {
	case "hb":
		return c.heartBeat(ctx)
	case "gr":
		return c.getReplicas(ctx)
	case "addr":
		return c.addresses(ctx)
	case "get":
		switch c.what {
		case "addr":
			return c.addresses(ctx)
		case "info":
			return c.info()
		}
		return c.nodes(ctx)
	case "load":
		return c.load(ctx)
	case "unload":
		return c.unload(ctx)
	case "clean":
		return c.clean(ctx)
	}
	return oneOf("cmd_type", c.cmdType, "hb", "gr", "addr", "get", "load", "unload", "clean")
}

func (c *agentClient) heartBeat(ctx context.Context) error {
	target, err := agentTarget(c.target, c.port, c.conf)
	if err != nil {
		return err
	}
	var got *agentpb.HeartBeatResponse
	if err := c.askAgent(ctx, target, func(ctx context.Context, a agentpb.AgentServiceClient) (err error) {
		got, err = a.HeartBeat(ctx, &agentpb.HeartBeatRequest{ServerType: serverTypes[c.serverType]})
		return err
	}); err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(got.GetAddresses()))
	plain := map[string][]string{}
	for _, k := range keys {
		plain[k] = append([]string{}, got.GetAddresses()[k].GetAddress()...)
	}
	return c.print(plain, func(w io.Writer) error {
		for _, k := range keys {
			lines := textAddresses(got.GetAddresses()[k])
			if len(lines) == 0 {
				lines = []string{""} // an empty text is one line
			}
			if _, err := fmt.Fprintf(w, "%s  -> (%d) \n\t%s\n", k, len(lines), strings.Join(lines, "\n\t")); err != nil {
				return err
			}
		}
		return nil
	}, func(w io.Writer) error {
		if len(keys) == 0 {
			return line("%s knows no %s that answers", target, c.serverType)(w)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, k := range keys {
			fmt.Fprintf(t, "%s\t%s\n", k, strings.Join(plain[k], "  "))
		}
		return t.Flush()
	})
}

func (c *agentClient) getReplicas(ctx context.Context) error {
	if err := c.needModel(); err != nil {
		return err
	}
	target, err := agentTarget(c.target, c.port, c.conf)
	if err != nil {
		return err
	}
	var got *agentpb.GetReplicasResponse
	if err := c.askAgent(ctx, target, func(ctx context.Context, a agentpb.AgentServiceClient) (err error) {
		got, err = a.GetReplicas(ctx, &agentpb.GetReplicasRequest{ServerType: serverTypes[c.serverType], Task: int32(c.task), ModelName: c.model})
		return err
	}); err != nil {
		return err
	}
	list := append([]string{}, got.GetAddressList().GetAddress()...)
	return c.print(list, line("%s %d  =>  %s", serverTypes[c.serverType], c.task, pyList(list)), func(w io.Writer) error {
		if len(list) == 0 {
			return line("no %s:%d of %s answers", c.serverType, c.task, c.model)(w)
		}
		return line("%s", strings.Join(list, "\n"))(w)
	})
}

func (c *agentClient) addresses(ctx context.Context) error {
	if err := c.needModel(); err != nil {
		return err
	}
	t, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	found, ok, err := replicaNodes(t, c.conn.BZID, c.model)
	if err != nil {
		return err
	}
	if !ok {
		if c.exact {
			return line("%s has not load !", c.model)(c.out)
		}
		return fmt.Errorf("%s has no replica in %s: is it loaded? (agent-client --cmd_type=load)", c.model, c.conn.BZID)
	}
	state := func(m znodedata.ReplicaMeta) string { return replica.State(m.Stat).String() }
	type row struct {
		Path    string `json:"path"`
		State   string `json:"state"`
		Address string `json:"address"`
		Archon  string `json:"archon_address"`
	}
	rows, lines := []row{}, []string{}
	for _, n := range found {
		rows = append(rows, row{n.path, state(n.meta), n.meta.Address, n.meta.ArchonAddress})
		lines = append(lines, fmt.Sprintf("%s\tarchon_address: %s\taddress: %s\tstate: %s", n.path, pyNone(n.meta.ArchonAddress), pyNone(n.meta.Address), state(n.meta)))
	}
	slices.Sort(lines)
	return c.print(rows, func(w io.Writer) error {
		for _, l := range lines {
			if _, err := fmt.Fprintln(w, l); err != nil {
				return err
			}
		}
		return nil
	}, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "REPLICA\tSTATE\tADDRESS\tARCHON")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", strings.TrimPrefix(r.Path, "/"+c.conn.BZID+"/service/"), r.State, cmp.Or(r.Address, "-"), cmp.Or(r.Archon, "-"))
		}
		return t.Flush()
	})
}

// info is what an exported_models folder on this machine holds.
func (c *agentClient) info() error {
	if c.modelDir == "" {
		return fmt.Errorf("%w: name the exported_models folder with --model_dir", flags.ErrUsage)
	}
	subs, ckpt, version, err := modelinfo.Calculate(c.modelDir, c.ckpt)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(subs))
	type info struct {
		Size int64  `json:"size"`
		Path string `json:"path"`
	}
	plain := map[string]info{}
	parts := make([]string, len(names))
	for i, n := range names {
		plain[n] = info{subs[n].Size, subs[n].Path}
		parts[i] = fmt.Sprintf("%s: (%d, %s)", pyString(n), subs[n].Size, pyString(subs[n].Path))
	}
	return c.print(plain, line("{%s}", strings.Join(parts, ", ")), func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "version %d, checkpoint %s\n", version, cmp.Or(ckpt, "unknown"))
		for _, n := range names {
			fmt.Fprintf(t, "%s\t%d bytes\t%s\n", n, subs[n].Size, subs[n].Path)
		}
		return t.Flush()
	})
}

// folders are where the kinds of nodes stand. The original looks for locks under lock,
// where nobody puts them.
var folders = map[string]string{"res": "resource", "pub": "publish", "portal": "portal", "lock": "locks", "elect": "election", "addr": "service"}

func (c *agentClient) nodes(ctx context.Context) error {
	t, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	base := "/" + c.conn.BZID + "/" + folders[c.what]
	names, ok, err := t.children(base)
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	plain := map[string]any{}
	for _, n := range names {
		d, there, err := t.get(base + "/" + n)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		data[n] = d
		plain[n] = string(d)
		if json.Valid(d) {
			plain[n] = json.RawMessage(d)
		}
	}
	sorted := slices.Sorted(maps.Keys(data))
	return c.print(plain, func(w io.Writer) error {
		switch {
		case !ok:
			return line("no %s found !", c.what)(w)
		case len(sorted) == 0:
			return line("{}")(w)
		}
		for _, n := range sorted {
			if _, err := fmt.Fprintln(w, n, pyBytes(data[n])); err != nil {
				return err
			}
		}
		return nil
	}, func(w io.Writer) error {
		if len(sorted) == 0 {
			return line("nothing stands in %s", base)(w)
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, n := range sorted {
			fmt.Fprintf(t, "%s\t%s\n", n, data[n])
		}
		return t.Flush()
	})
}

func (c *agentClient) load(ctx context.Context) error {
	if err := c.needModel(); err != nil {
		return err
	}
	return c.loadModel(ctx, c.modelDir, c.ckpt, c.numShard)
}

// loadModel asks for a model: by a portal node in ZooKeeper, by the portal's command
// otherwise.
func (c *compat) loadModel(ctx context.Context, dir, ckpt string, numShard int) error {
	if dir != "" && !strings.Contains(dir, ":/") { // hdfs:/ and its like are whole
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		dir = abs
	}
	if c.zk != "" {
		if c.follow {
			return fmt.Errorf("%w: a portal node cannot say --follow: leave --zk_servers out", flags.ErrUsage)
		}
		t, err := dialZK(ctx, c.zk)
		if err != nil {
			return err
		}
		defer t.close()
		path := "/" + c.conn.BZID + "/portal/" + c.model
		meta := znodedata.ModelMeta{ModelName: c.model, ModelDir: dir, Ckpt: ckpt, NumShard: int32(numShard), Action: "NONE"}
		if err := t.put(path, meta.Bytes()); err != nil {
			return err
		}
		return c.print(map[string]string{"path": path}, silentText, line("%s written: whoever follows the portal loads %s", path, c.model))
	}
	var got stored
	body := map[string]any{"modelName": c.model, "modelDir": dir, "ckpt": ckpt, "numShard": numShard, "follow": c.follow}
	if err := c.call(ctx, "portal.load", body, &got); err != nil {
		return err
	}
	return c.print(got, silentText, line("%s is accepted for loading (fact %s)", c.model, got.Seq))
}

func (c *agentClient) unload(ctx context.Context) error {
	if err := c.needModel(); err != nil {
		return err
	}
	err := c.unloadModel(ctx)
	if c.exact && err != nil && isNotFound(err) {
		return nil // the original ignores it
	}
	return err
}

func (c *compat) unloadModel(ctx context.Context) error {
	if c.zk != "" {
		t, err := dialZK(ctx, c.zk)
		if err != nil {
			return err
		}
		defer t.close()
		path := "/" + c.conn.BZID + "/portal/" + c.model
		found, err := t.remove(path, false)
		if err != nil {
			return err
		}
		if !found {
			return notFoundError{fmt.Sprintf("%s is not loaded: %s is not there", c.model, path)}
		}
		return c.print(map[string]string{"path": path}, silentText, line("%s deleted", path))
	}
	var got stored
	if err := c.call(ctx, "portal.unload", map[string]any{"modelName": c.model, "reason": "asked on the command line"}, &got); err != nil {
		return err
	}
	return c.print(got, silentText, line("%s is unloaded (fact %s)", c.model, got.Seq))
}

func (c *agentClient) clean(ctx context.Context) error {
	recursive, known := map[string]bool{"portal": false, "pub": false, "addr": true, "res": true}[c.what]
	if !known {
		return notSupported(c.what)
	}
	base := "/" + c.conn.BZID + "/" + folders[c.what]
	if c.zk == "" {
		if c.what != "portal" {
			return fmt.Errorf("what stands in %s follows from facts that are not the user's to delete: unload models with --args=portal, or name a ZooKeeper with --zk_servers", base)
		}
		return c.cleanPortal(ctx)
	}
	t, err := dialZK(ctx, c.zk)
	if err != nil {
		return err
	}
	defer t.close()
	names, _, err := t.children(base)
	if err != nil {
		return err
	}
	for _, n := range names {
		if _, err := t.remove(base+"/"+n, recursive); err != nil {
			return err
		}
	}
	return c.print(map[string]any{"deleted": append([]string{}, names...)}, silentText, line("%d nodes deleted below %s", len(names), base))
}

// notSupported is said in the original's words.
type notSupported string

func (e notSupported) Error() string { return string(e) + " is not support!" }

// cleanPortal unloads everything.
func (c *agentClient) cleanPortal(ctx context.Context) error {
	b, err := c.conn.Dial(ctx, "monolith compat")
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	var models []struct {
		Name   string `json:"name"`
		Loaded bool   `json:"loaded"`
	}
	if err := callOn(ctx, b, c.conn.BZID, "portal.models", struct{}{}, &models); err != nil {
		return err
	}
	names := []string{}
	for _, m := range models {
		if !m.Loaded {
			continue
		}
		if err := callOn(ctx, b, c.conn.BZID, "portal.unload", map[string]any{"modelName": m.Name, "reason": "cleaned on the command line"}, nil); err != nil && !isNotFound(err) {
			return err
		}
		names = append(names, m.Name)
	}
	return c.print(map[string]any{"unloaded": names}, silentText, line("%d models unloaded", len(names)))
}

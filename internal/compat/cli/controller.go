package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/wire/znodedata"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/compat/fnmatch"
	"github.com/monolith-go/monolith/internal/compat/savedmodel"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// controller is the original's agent_controller.
type controller struct {
	compat
	cmd, exportBase, layout, arch string
	overwrite                     int
}

func newAgentController() *cobra.Command {
	var c controller
	cmd := &cobra.Command{
		Use:   "agent-controller",
		Short: "The original's agent_controller: decl, pub, unpub, bzid_info",
		Long: "Declares the saved models of an export, puts them into layouts and takes them out by glob\n" +
			"patterns, and shows the namespace, with the original's flags.",
		Example: "  monolith agent-controller --cmd=decl --export_base=/d/m1/exported_models\n" +
			"  monolith agent-controller --cmd=pub --layout=l1 --model_name='m1:ps_*'\n" +
			"  monolith agent-controller --cmd=bzid_info --compat",
		Args: flags.NoArgs,
	}
	fs := cmd.Flags()
	c.register(fs)
	fs.StringVar(&c.cmd, "cmd", "bzid_info", "decl, pub, unpub or bzid_info")
	fs.StringVar(&c.exportBase, "export_base", "", "exported_models folder of decl")
	fs.IntVar(&c.overwrite, "overwrite", 0, "1: declare though the model is declared")
	fs.StringVar(&c.layout, "layout", "", "layout of pub and unpub")
	fs.StringVar(&c.arch, "arch", "entry_ps", "architecture of the export; entry_ps is the one there is")
	cmd.RunE = c.begun(func(ctx context.Context) error {
		if c.zk != "" && !c.bzidSet {
			c.conn.BZID = "test" // the original's default
		}
		return c.run(ctx)
	})
	return cmd
}

func (c *controller) run(ctx context.Context) error {
	if err := oneOf("cmd", c.cmd, "decl", "pub", "unpub", "bzid_info"); err != nil {
		return err
	}
	if c.exact {
		if _, err := fmt.Fprintln(c.out); err != nil { // whatever it does
			return err
		}
	}
	switch c.cmd {
	case "decl":
		if c.exportBase == "" {
			return fmt.Errorf("%w: name the export with --export_base", flags.ErrUsage)
		}
		var err error
		if c.exportBase, err = filepath.Abs(c.exportBase); err != nil {
			return err
		}
		if err := oneOf("arch", c.arch, "entry_ps"); err != nil {
			return err
		}
		return c.declare(ctx)
	case "bzid_info":
		return c.info(ctx)
	}
	model, pattern, ok := strings.Cut(c.model, ":")
	if c.layout == "" || !ok || model == "" || pattern == "" {
		return fmt.Errorf("%w: %s needs --layout and --model_name={model}:{glob}", flags.ErrUsage, c.cmd)
	}
	return c.arrange(ctx, model, pattern)
}

func (c *controller) declare(ctx context.Context) error {
	if c.zk == "" {
		var got map[string]any
		body := map[string]any{"exportBase": c.exportBase, "arch": c.arch, "overwrite": c.overwrite != 0}
		if c.model != "" {
			body["model"] = c.model
		}
		if err := c.call(ctx, "portal.declareExport", body, &got); err != nil {
			return err
		}
		return c.print(got, silentText, line("%s is declared (fact %v)", c.exportBase, got["seq"]))
	}
	model := c.model
	if model == "" {
		var err error
		if model, err = savedmodel.FindModelName(c.exportBase); err != nil {
			return fmt.Errorf("%w: name the model with --model_name", err)
		}
	}
	entries, err := os.ReadDir(c.exportBase)
	if err != nil {
		return fmt.Errorf("--export_base: %w", err)
	}
	t, err := dialZK(ctx, c.zk)
	if err != nil {
		return err
	}
	defer t.close()
	base := "/" + c.conn.BZID + "/saved_models/" + model
	declared, _, err := t.children(base)
	if err != nil {
		return err
	}
	if len(declared) > 0 && c.overwrite == 0 {
		return fmt.Errorf("%s is declared already, with %s: give --overwrite=1 to declare it anew", model, strings.Join(declared, ", "))
	}
	subs := []string{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !isDirectory(filepath.Join(c.exportBase, e.Name())) {
			continue // the original declares stray files as well
		}
		policy := "latest_once"
		if e.Name() == "entry" {
			policy = "latest"
		}
		config := znodedata.SavedModelDeployConfig{ModelBasePath: filepath.Join(c.exportBase, e.Name()), VersionPolicy: policy}
		if err := t.put(base+"/"+e.Name(), config.Bytes()); err != nil {
			return err
		}
		subs = append(subs, e.Name())
	}
	return c.print(map[string]any{"model": model, "sub_graphs": subs}, silentText, line("%s is declared, with %s", model, strings.Join(subs, ", ")))
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// arrange puts a model's declared sub-graphs that match into a layout, or takes them out.
func (c *controller) arrange(ctx context.Context, model, pattern string) error {
	done := map[string]string{"pub": "published to", "unpub": "unpublished from"}[c.cmd]
	if c.zk == "" {
		command := map[string]string{"pub": "portal.publish", "unpub": "portal.unpublish"}[c.cmd]
		var got map[string]any
		if err := c.call(ctx, command, map[string]any{"layout": c.layout, "pattern": c.model}, &got); err != nil {
			return err
		}
		return c.print(got, silentText, line("%s is %s %s (fact %v)", c.model, done, c.layout, got["seq"]))
	}
	t, err := dialZK(ctx, c.zk)
	if err != nil {
		return err
	}
	defer t.close()
	declared, _, err := t.children("/" + c.conn.BZID + "/saved_models/" + model)
	if err != nil {
		return err
	}
	subs := fnmatch.Filter(declared, pattern)
	for _, sub := range subs {
		path := "/" + c.conn.BZID + "/layouts/" + c.layout + "/" + model + ":" + sub
		if c.cmd == "pub" {
			if _, there, err := t.get(path); err != nil || there {
				if err != nil {
					return err
				}
				continue
			}
			err = t.put(path, nil)
		} else {
			_, err = t.remove(path, false)
		}
		if err != nil {
			return err
		}
	}
	return c.print(map[string]any{"layout": c.layout, "sub_graphs": append([]string{}, subs...)}, silentText,
		line("%d sub-graphs of %s are %s %s: %s", len(subs), model, done, c.layout, strings.Join(subs, ", ")))
}

func (c *controller) info(ctx context.Context) error {
	t, err := c.read(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	info, err := bzidInfo(t, c.conn.BZID)
	if err != nil {
		return err
	}
	return c.print(info, line("%s", pyDumps(info, "")), func(w io.Writer) error { return humanInfo(w, c.conn.BZID, info) })
}

// bzidInfo is the namespace as the original's backend tells it: what is declared, who
// serves it, and what the layouts hold.
func bzidInfo(t tree, bzid string) (map[string]any, error) {
	models, containers, layouts := map[string]any{}, map[string]any{}, map[string]any{}
	bound := map[string][]string{} // container -> {model}:{sub_graph}
	err := each(t, "/"+bzid+"/saved_models", func(path, model string) error {
		m := map[string]any{}
		total := 0
		err := each(t, path, func(path, sub string) error {
			data, _, err := t.get(path)
			m[sub] = map[string]any{"deploy_config": string(data), "bindings": []any{}}
			total++
			return err
		})
		m["sub_graphs_total"], m["sub_graphs_available"] = total, 0
		models[model] = m
		return err
	})
	if err != nil {
		return nil, err
	}
	err = each(t, "/"+bzid+"/binding", func(path, model string) error {
		return each(t, path, func(_, name string) error {
			sub, container, ok := strings.Cut(name, ":")
			if !ok {
				return nil // not one of ours
			}
			bound[container] = append(bound[container], model+":"+sub)
			m, _ := models[model].(map[string]any)
			s, _ := m[sub].(map[string]any)
			if s == nil {
				return nil // no longer declared
			}
			list := s["bindings"].([]any)
			if len(list) == 0 {
				m["sub_graphs_available"] = m["sub_graphs_available"].(int) + 1
			}
			s["bindings"] = append(list, container)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	err = each(t, "/"+bzid+"/container_service", func(path, name string) error {
		data, _, err := t.get(path)
		cluster, id, _ := strings.Cut(name, ":")
		if containers[cluster] == nil {
			containers[cluster] = map[string]any{}
		}
		slices.Sort(bound[name])
		saved := []any{}
		for _, b := range bound[name] {
			saved = append(saved, b)
		}
		containers[cluster].(map[string]any)[id] = map[string]any{"service_info": string(data), "saved_models": saved}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = each(t, "/"+bzid+"/layouts", func(path, layout string) error {
		list := []any{}
		err := each(t, path, func(_, name string) error {
			list = append(list, name)
			return nil
		})
		layouts[layout] = list
		return err
	})
	return map[string]any{"model_info": models, "container_info": containers, "layout_info": layouts}, err
}

// each calls f with every child of path, in order; none where there is no node.
func each(t tree, path string, f func(path, name string) error) error {
	names, _, err := t.children(path)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := f(path+"/"+n, n); err != nil {
			return err
		}
	}
	return nil
}

func humanInfo(w io.Writer, bzid string, info map[string]any) error {
	var b strings.Builder
	keys := func(v any) []string {
		var out []string
		for k := range v.(map[string]any) {
			out = append(out, k)
		}
		slices.Sort(out)
		return out
	}
	models := info["model_info"].(map[string]any)
	for _, name := range keys(models) {
		m := models[name].(map[string]any)
		fmt.Fprintf(&b, "model %s: %v of %v sub-graphs are served\n", name, m["sub_graphs_available"], m["sub_graphs_total"])
		for _, sub := range keys(m) {
			s, ok := m[sub].(map[string]any)
			if !ok {
				continue
			}
			var config struct {
				Path   string `json:"model_base_path"`
				Policy string `json:"version_policy"`
			}
			_ = json.Unmarshal([]byte(s["deploy_config"].(string)), &config) // what cannot be read is shown empty
			fmt.Fprintf(&b, "  %s  %s (%s)  served by %d\n", sub, config.Path, config.Policy, len(s["bindings"].([]any)))
		}
	}
	containers := info["container_info"].(map[string]any)
	for _, cluster := range keys(containers) {
		for _, id := range keys(containers[cluster]) {
			c := containers[cluster].(map[string]any)[id].(map[string]any)
			fmt.Fprintf(&b, "container %s:%s serves %v\n", cluster, id, c["saved_models"])
		}
	}
	layouts := info["layout_info"].(map[string]any)
	for _, name := range keys(layouts) {
		fmt.Fprintf(&b, "layout %s holds %v\n", name, layouts[name])
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "nothing is declared in %s\n", bzid)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

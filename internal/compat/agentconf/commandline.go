package agentconf

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// Start is one server that is to be started.
type Start struct {
	Binary      string
	Kind        string // of server
	ModelConfig string // the file of its models
	// Original is whether the binary is ByteDance's TensorFlow Serving: archon, its log and its metrics
	// have flags that no other knows. Archon is whether it speaks archon in place of gRPC.
	Original, Archon bool
}

// pollWait is how often an agent of version 3 has its server read the file of its models.
const pollWait = 60

// Command is the command line of a server, each argument by itself, in the original's order.
func (d *Deployment) Command(s Start) []string {
	p := d.Ports[s.Kind]
	c := commandLine{args: []string{s.Binary}, original: s.Original}
	c.add("model_config_file", s.ModelConfig)
	if d.AgentVersion == 3 {
		d.unified(&c, s, p)
	} else {
		d.separate(&c, s.Kind, p)
	}
	d.options(&c, s.Kind)
	return c.args
}

type commandLine struct {
	args     []string
	original bool
}

func (c *commandLine) add(flag string, value any) {
	c.args = append(c.args, fmt.Sprintf("--%s=%v", flag, value))
}

// only adds what ByteDance's binary alone knows.
func (c *commandLine) only(flag string, value any) {
	if c.original {
		c.add(flag, value)
	}
}

// separate are the flags of a server that serves one kind, those of the first agents.
func (d *Deployment) separate(c *commandLine, kind string, p Ports) {
	psm, suffix := d.PSM, ""
	if d.Type == Mixed && kind != Entry {
		suffix = "_" + kind
	}
	c.only("archon_rpc_psm", psm+suffix)
	c.only("archon_rpc_cluster", d.TCE)
	c.only("metrics_namespace_prefix", psm+suffix)
	c.only("log_conf", "../conf/log4j"+suffix+".properties")
	c.add("port", p.GRPC)
	c.add("rest_api_port", p.HTTP)
	c.only("archon_port", p.Archon)
	if kind == Dense && d.EnableBatching && c.original {
		c.add("enable_batching", true) // and once more below
	}
	if kind != PS {
		c.only("archon_entry_to_ps_rpc_timeout", d.FetchPSTimeoutMS)
		c.only("archon_entry_to_ps_long_conn_num", d.FetchPSLongConnNum)
		c.only("archon_entry_to_ps_rpc_retry", d.FetchPSRetry)
		c.only("archon_async_dispatcher_threads", d.AIOThreadNum)
		if !d.FetchPSLongConnEnable {
			c.only("archon_entry_to_ps_long_conn_enable", false)
		}
	}
	if d.AgentVersion != 1 {
		c.add("model_config_file_poll_wait_seconds", 0)
	}
}

// unified are the flags of a server that serves what a layout offers.
func (d *Deployment) unified(c *commandLine, s Start, p Ports) {
	c.add("port", p.GRPC)
	c.add("rest_api_port", p.HTTP)
	c.add("model_config_file_poll_wait_seconds", pollWait)
	c.only("archon_port", p.Archon)
	c.only("archon_rpc_psm", d.PSM)
	c.only("archon_rpc_cluster", d.TCE)
	c.only("metrics_namespace_prefix", d.PSM)
	if s.Archon {
		c.only("archon_entry_to_ps_rpc_timeout", d.FetchPSTimeoutMS)
	}
	c.only("conf_file", "conf/service.conf")
	c.only("log_conf", "conf/log4j.properties")
}

// unknownFlags are options for which TensorFlow Serving has no flag of that meaning: what they
// say stands in the platform's file, or nowhere.
var unknownFlags = []string{"allow_growth", "version"}

// options are TensorFlow Serving's own, where they differ from what it does by itself.
func (d *Deployment) options(c *commandLine, kind string) {
	standard := map[string]any{}
	by := defaultServing()
	collect(reflect.ValueOf(&by).Elem(), func(key string, v reflect.Value) { standard[key] = v.Interface() })
	collect(reflect.ValueOf(&d.Serving).Elem(), func(key string, v reflect.Value) {
		value := v.Interface()
		ofPS := key == "file_system_poll_wait_seconds" && d.AgentVersion == 1 && kind == PS
		if ofPS {
			value = d.FileSystemPollWaitPS
		}
		if !ofPS && value == standard[key] || !c.original && slices.Contains(unknownFlags, key) {
			return
		}
		if f, ok := value.(float64); ok {
			value = strconv.FormatFloat(f, 'g', -1, 64)
		}
		c.add(key, value)
	})
}

// Proxy is the command line of the front that turns HTTP into gRPC for the entry, which reads conf where
// that is a file; nil: there is no entry, or no proxy_port.
func (d *Deployment) Proxy(binary, conf string) []string {
	entry, has := d.Ports[Entry]
	if d.ProxyPort == 0 || !has {
		return nil
	}
	line := []string{binary, fmt.Sprintf("--port=%d", d.ProxyPort), fmt.Sprintf("--grpc_target=localhost:%d", entry.GRPC)}
	if conf != "" {
		line = append(line, "--conf_file="+conf)
	}
	return line
}

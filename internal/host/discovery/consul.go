package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// consul is an agent of Consul, asked by its HTTP API. All tasks of a job are instances of one service,
// called by the job's psm, and tags say which is which.
type consul struct {
	base string
	psm  string
	http *http.Client
}

const (
	consulTTL   = 60 * time.Second // after which a task that nobody keeps up is critical
	consulKeep  = 30 * time.Second
	consulReply = 16 << 20 // most bytes of an answer
)

// newConsul finds the agent as the original does: CONSUL_HTTP_HOST, or else TCE_HOST_IP, or else this
// machine; CONSUL_HTTP_PORT, or else 2280.
func newConsul(getenv func(string) string, psm string) (*consul, error) {
	host, port := "127.0.0.1", "2280"
	for _, name := range []string{"TCE_HOST_IP", "CONSUL_HTTP_HOST"} {
		if v := getenv(name); v != "" {
			host = v
		}
	}
	if v := getenv("CONSUL_HTTP_PORT"); v != "" {
		port = v
	}
	if psm == "" {
		return nil, errors.New("discovery_type consul needs a name for the job's tasks: give uuid or deep_insight_name")
	}
	return &consul{base: "http://" + net.JoinHostPort(host, port), psm: psm, http: &http.Client{Transport: &http.Transport{}}}, nil
}

func (c *consul) Kind() string         { return "consul" }
func (c *consul) Every() time.Duration { return consulKeep }
func (c *consul) Close() error         { c.http.CloseIdleConnections(); return nil }

// id names a task at the agent.
func (c *consul) id(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return c.psm + "-" + port
}

// Register puts the task in place of another one of its role and index, and passes its check.
func (c *consul) Register(ctx context.Context, role string, index int, addr string) error {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	known, err := c.instances(ctx, role)
	if err != nil {
		return err
	}
	for _, x := range known {
		if x.index == index && x.addr != addr {
			if err := c.call(ctx, http.MethodPut, "/v1/agent/service/deregister/"+url.PathEscape(x.id), nil, nil); err != nil {
				return err
			}
		}
	}
	err = c.call(ctx, http.MethodPut, "/v1/agent/service/register", map[string]any{
		"id": c.id(addr), "name": c.psm, "address": host, "port": port, "check": map[string]string{"ttl": consulTTL.String()},
		"tags": []string{"index:" + strconv.Itoa(index), "name:" + role, "ip:" + host},
	}, nil)
	if err != nil {
		return err
	}
	return c.pass(ctx, addr)
}

// pass says that the task is alive.
func (c *consul) pass(ctx context.Context, addr string) error {
	return c.call(ctx, http.MethodPut, "/v1/agent/check/pass/service:"+url.PathEscape(c.id(addr)), nil, nil)
}

// Keep passes the check; an agent that knows nothing of it was started anew.
func (c *consul) Keep(ctx context.Context, role string, index int, addr string) error {
	var refused *statusError
	err := c.pass(ctx, addr)
	if errors.As(err, &refused) {
		return c.Register(ctx, role, index, addr)
	}
	return err
}

func (c *consul) Deregister(ctx context.Context, _ string, _ int, addr string) error {
	err := c.call(ctx, http.MethodPut, "/v1/agent/service/deregister/"+url.PathEscape(c.id(addr)), nil, nil)
	if refused := (*statusError)(nil); errors.As(err, &refused) && refused.code == http.StatusNotFound {
		return nil
	}
	return err
}

func (c *consul) Query(ctx context.Context, role string) (map[int]string, error) {
	known, err := c.instances(ctx, role)
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, x := range known {
		if x.passing {
			found[x.index] = x.addr
		}
	}
	return found, nil
}

// instance is a task as Consul's catalogue has it.
type instance struct {
	id, addr string
	index    int
	passing  bool
}

// instances are all of a role, critical ones too. An address comes from the tag ip, as the original
// registers it, or else from the service or its node.
func (c *consul) instances(ctx context.Context, role string) (all []instance, err error) {
	var entries []struct {
		Node    struct{ Address string }
		Service struct {
			ID, Address string
			Port        int
			Tags        []string
		}
		Checks []struct{ Status string }
	}
	if err := c.call(ctx, http.MethodGet, "/v1/health/service/"+url.PathEscape(c.psm), nil, &entries); err != nil {
		return nil, err
	}
	for _, e := range entries {
		tags := map[string]string{}
		for _, t := range e.Service.Tags {
			k, v, _ := strings.Cut(t, ":")
			tags[k] = v
		}
		index, err := strconv.Atoi(tags["index"])
		if err != nil || tags["name"] != role {
			continue
		}
		x := instance{id: e.Service.ID, index: index, passing: true}
		host := e.Node.Address
		for _, h := range []string{e.Service.Address, tags["ip"]} {
			if h != "" {
				host = h
			}
		}
		x.addr = net.JoinHostPort(host, strconv.Itoa(e.Service.Port))
		for _, check := range e.Checks {
			x.passing = x.passing && check.Status == "passing"
		}
		all = append(all, x)
	}
	return all, nil
}

// statusError is an answer of the agent's that is no success.
type statusError struct {
	code int
	said string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the Consul agent answers %d: %s", e.code, e.said)
}

func (c *consul) call(ctx context.Context, method, path string, body, answer any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	r, err := c.http.Do(q)
	if err != nil {
		return fmt.Errorf("ask the Consul agent at %s (CONSUL_HTTP_HOST, CONSUL_HTTP_PORT): %w", c.base, err)
	}
	defer func() { _ = r.Body.Close() }() // it was only read
	if raw, err = io.ReadAll(io.LimitReader(r.Body, consulReply)); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return &statusError{r.StatusCode, strings.TrimSpace(string(raw[:min(len(raw), 512)]))}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(raw, answer)
}

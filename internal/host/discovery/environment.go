package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/host/runconfig"
)

// static is a backend whose tasks the environment lists: nobody registers anything.
type static struct {
	kind  string
	tasks map[string]map[int]string // role -> index -> address
	own   Task
	has   bool
}

func (s *static) Kind() string                                          { return s.kind }
func (s *static) Register(context.Context, string, int, string) error   { return nil }
func (s *static) Deregister(context.Context, string, int, string) error { return nil }
func (s *static) Query(_ context.Context, role string) (map[int]string, error) {
	return s.tasks[role], nil
}
func (s *static) Close() error       { return nil }
func (s *static) Task() (Task, bool) { return s.own, s.has }

// newCluster reads TF_CONFIG as Primus writes it. The chief is worker 0, and workers count from 1 behind
// it; a job type nats says where the log is.
func newCluster(text string) (*static, error) {
	var c struct {
		Cluster map[string][]string `json:"cluster"`
		Task    struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
		} `json:"task"`
	}
	if text == "" {
		return nil, errors.New("discovery_type primus reads the tasks from TF_CONFIG: set it, or give tf_config")
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("TF_CONFIG is not as in {\"cluster\":{\"ps\":[\"host:port\"]},\"task\":{\"type\":\"ps\",\"index\":0}}: %w", err)
	}
	s := &static{kind: "tf_config", tasks: map[string]map[int]string{}}
	first := len(c.Cluster["chief"])
	for role, addrs := range c.Cluster {
		begin := 0
		switch role {
		case "chief":
			role = "worker"
		case "worker":
			begin = first
		}
		if s.tasks[role] == nil {
			s.tasks[role] = map[int]string{}
		}
		for i, addr := range addrs {
			s.tasks[role][begin+i] = addr
		}
	}
	t := Task{Role: c.Task.Type, Index: c.Task.Index, PS: len(c.Cluster["ps"])}
	switch t.Role {
	case "":
		return s, nil
	case "chief":
		t.Role = "worker"
	case "worker":
		t.Index += first
	}
	if t.Addr = s.tasks[t.Role][t.Index]; t.Addr == "" {
		return nil, fmt.Errorf("TF_CONFIG names this process %s %d, which its cluster does not have", c.Task.Type, c.Task.Index)
	}
	s.own, s.has = t, true
	return s, nil
}

// newMLP reads the variables MLP_ROLE, MLP_ROLE_INDEX, MLP_PORT, MLP_<ROLE>_NUM and
// MLP_<ROLE>_<i>_PRIMARY_HOST, _HOST and _PORT. A worker that MPI has started is the worker of its rank,
// on the port that many above.
func newMLP(getenv func(string) string) (*static, error) {
	get := func(name string) string { return strings.Trim(getenv(name), `"' `) }
	s := &static{kind: "mlp", tasks: map[string]map[int]string{}}
	number := func(name string) (int, error) {
		n, err := strconv.Atoi(get(name))
		if err != nil || n < 0 || n > 1<<16 {
			return 0, fmt.Errorf("%s is %q, no number of 0 to 65536: the job is started by MLP, or discovery_type is another", name, get(name))
		}
		return n, nil
	}
	for _, role := range []string{"ps", "worker", "nats"} {
		prefix := "MLP_" + strings.ToUpper(role)
		if get(prefix+"_NUM") == "" {
			continue
		}
		n, err := number(prefix + "_NUM")
		if err != nil {
			return nil, err
		}
		s.tasks[role] = map[int]string{}
		for i := range n {
			at := fmt.Sprintf("%s_%d", prefix, i)
			host := get(at + "_PRIMARY_HOST")
			if host == "" {
				host = get(at + "_HOST")
			}
			if host == "" || get(at+"_PORT") == "" {
				return nil, fmt.Errorf("%s_HOST and %s_PORT do not say where %s %d of %d is", at, at, role, i, n)
			}
			s.tasks[role][i] = net.JoinHostPort(host, get(at+"_PORT"))
		}
	}
	role := strings.ToLower(get("MLP_ROLE"))
	if role == "" {
		return nil, errors.New("MLP_ROLE is not set: the job is started by MLP, or discovery_type is another")
	}
	index, err := number("MLP_ROLE_INDEX")
	if err != nil {
		return nil, err
	}
	s.own, s.has = Task{Role: role, Index: index, PS: len(s.tasks["ps"]), Addr: s.tasks[role][index]}, true
	if role != "worker" || getenv("OMPI_COMM_WORLD_RANK") == "" {
		return s, nil
	}
	ranks, err := runconfig.RanksOf(getenv)
	if err != nil {
		return nil, err
	}
	port, err := number("MLP_PORT")
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(s.tasks[role][ranks.Rank/ranks.LocalSize])
	if err != nil {
		return nil, fmt.Errorf("MLP names no machine of rank %d", ranks.Rank)
	}
	s.own.Index, s.own.Addr = ranks.Rank, net.JoinHostPort(host, strconv.Itoa(port+ranks.Rank))
	return s, nil
}

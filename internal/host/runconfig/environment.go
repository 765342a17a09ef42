package runconfig

import (
	"fmt"
	"strconv"
)

// environment is what the environment of the original's launchers says: TF_CONFIG of Primus, zk_servers,
// and with synchronous training the rank by which Horovod, MPI or BytePS started this process, which is
// the index then (facts I.1).
func environment(getenv func(string) string, sync bool) (Values, error) {
	v := Values{}
	for key, variable := range map[string]string{"tf_config": "TF_CONFIG", "zk_server": "zk_servers"} {
		if value := getenv(variable); value != "" {
			if err := v.put(key, value, fromEnvironment); err != nil {
				return nil, fmt.Errorf("%s: %w", variable, err)
			}
		}
	}
	if !sync {
		return v, nil
	}
	r, err := RanksOf(getenv)
	if r.Size > 0 {
		v["index"] = given{strconv.Itoa(r.Rank), fromEnvironment}
		v["num_workers"] = given{strconv.Itoa(r.Size), fromEnvironment}
	}
	return v, err
}

// Ranks are this process among those that one launcher has started, and among those on its machine.
type Ranks struct {
	Rank, Size           int // Size 0: no launcher says
	LocalRank, LocalSize int
}

// launchers are the variables of each: rank, size, and the two of the machine. BytePS counts machines
// instead of processes.
var launchers = []struct {
	vars     [4]string
	machines bool
}{
	{vars: [4]string{"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"}},
	{vars: [4]string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
	{vars: [4]string{"DMLC_WORKER_ID", "DMLC_NUM_WORKER", "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE"}, machines: true},
}

// RanksOf reads the variables of the first launcher that has set its rank. What it has not set is that of
// a process alone on its machine; what is no number, or no rank below the size, is an error: two
// processes would take themselves for one.
func RanksOf(getenv func(string) string) (Ranks, error) {
	for _, l := range launchers {
		if getenv(l.vars[0]) == "" {
			continue
		}
		n := [4]int{0, 1, 0, 1}
		for i, name := range l.vars {
			text := getenv(name)
			if text == "" {
				continue
			}
			var err error
			if n[i], err = strconv.Atoi(text); err != nil || n[i] < 0 {
				return Ranks{}, fmt.Errorf("%s is %q, which is no rank or size: unset it, or start the process by its launcher", name, text)
			}
		}
		r := Ranks{Rank: n[0], Size: n[1], LocalRank: n[2], LocalSize: n[3]}
		if l.machines {
			r.Rank, r.Size = r.Rank*r.LocalSize+r.LocalRank, r.Size*r.LocalSize
		}
		if r.Rank >= r.Size || r.LocalRank >= r.LocalSize {
			return Ranks{}, fmt.Errorf("%s says rank %d of %d, on its machine %d of %d: ranks count from 0 to below the size", l.vars[0], r.Rank, r.Size, r.LocalRank, r.LocalSize)
		}
		return r, nil
	}
	return Ranks{LocalSize: 1}, nil
}

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// task is a process that is started again whenever it ends, as service managers do, unless its
// machine is off.
type task struct {
	name   string
	m      *machine
	args   []string
	status string // file that it writes once it is ready, as the test finds it; "": it says that to nobody
	log    string

	mu      sync.Mutex
	on      bool
	cmd     *exec.Cmd // the newest
	runs    bool
	running sync.WaitGroup
}

// again is how long a service manager waits before it starts what has ended.
const again = time.Second

// add plans a process.
func (m *machine) add(name string, args ...string) *task {
	k := &task{name: name, m: m, args: args, log: filepath.Join(m.w.t.ArtifactDir(), fmt.Sprintf("%s-%s.log", m.Address, name))}
	m.tasks = append(m.tasks, k)
	return k
}

// monolith plans one that says when it is ready.
func (m *machine) monolith(name string, args ...string) {
	k := m.add(name, append([]string{m.w.binary}, append(args, "--status-file", m.w.path(name+".status"))...)...)
	k.status = filepath.Join(m.disk, name+".status")
}

// start keeps the process running until the machine is off.
func (k *task) start() {
	k.m.w.t.Helper()
	k.mu.Lock()
	k.on = true
	k.mu.Unlock()
	if err := k.launch(); err != nil {
		k.m.w.t.Fatalf("start %s: %v", k.name, err)
	}
}

// launch starts the process, and again once it has ended.
func (k *task) launch() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.on {
		return nil
	}
	if err := os.Remove(k.status); err != nil && k.status != "" && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := k.m.Command(k.args[0], k.args[1:]...)
	cmd.Env = append(os.Environ(), connect.EnvSynced+"="+connect.SyncedAlways)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	k.cmd, k.runs = cmd, true
	k.running.Go(func() {
		_ = cmd.Wait() // however it ends, it is started again
		k.mu.Lock()
		k.runs = false
		k.mu.Unlock()
		time.Sleep(again)
		if err := k.launch(); err != nil {
			k.m.w.t.Errorf("start %s again: %v", k.name, err)
		}
	})
	return nil
}

// signal sends it to the process that runs, if one does.
func (k *task) signal(s syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs {
		_ = k.cmd.Process.Signal(s) // one that ends at this moment is started again by itself
	}
}

// off is a power cut: every process of the machine is gone, and stays so.
func (m *machine) off() {
	m.stop(syscall.SIGKILL) // what has yet to enter the machine, too
	m.Signal(syscall.SIGKILL)
	m.wait()
}

// drain asks every process of the machine to end, and returns when all have.
func (m *machine) drain() {
	m.stop(syscall.SIGTERM)
	m.wait()
}

func (m *machine) stop(s syscall.Signal) {
	for _, k := range m.tasks {
		k.mu.Lock()
		k.on = false
		k.mu.Unlock()
		k.signal(s)
	}
}

func (m *machine) wait() {
	for _, k := range m.tasks {
		k.running.Wait()
	}
}

// boot starts everything that is planned.
func (m *machine) boot() {
	m.w.t.Helper()
	for _, k := range m.tasks {
		k.start()
	}
}

// ready waits until the process says that it is.
func (k *task) ready() {
	k.m.w.t.Helper()
	wait.Until(k.m.w.t, k.name+" on "+k.m.Address+" to be ready", func() error {
		if err := k.isReady(); err != nil {
			return fmt.Errorf("%w:\n%s", err, k.tail())
		}
		return nil
	})
}

func (k *task) isReady() error {
	status, err := k.saysReady()
	if err != nil || status == "" {
		return err
	}
	res, err := k.m.w.http.Get("https://" + status + "/readyz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("/readyz: %s: %s", res.Status, text)
	}
	return err
}

// saysReady is where the process that runs answers, once it has been ready.
func (k *task) saysReady() (status string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.runs {
		return "", errors.New("it does not run")
	}
	if k.status == "" {
		return "", nil
	}
	raw, err := os.ReadFile(k.status)
	if err != nil {
		return "", err
	}
	var said host.ProcessStatus
	if err := json.Unmarshal(raw, &said); err != nil {
		return "", err
	}
	if said.PID != k.cmd.Process.Pid {
		return "", fmt.Errorf("process %d said so, %d runs", said.PID, k.cmd.Process.Pid)
	}
	return said.Status, nil
}

// tail is the end of its log.
func (k *task) tail() string {
	raw, err := os.ReadFile(k.log)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-3000):])
}

func (m *machine) named(name string) *task {
	m.w.t.Helper()
	for _, k := range m.tasks {
		if k.name == name {
			return k
		}
	}
	m.w.t.Fatalf("machine %s has no %s", m.Address, name)
	return nil
}

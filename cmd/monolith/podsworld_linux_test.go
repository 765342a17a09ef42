package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/loadtest/demo"
)

// podsWorld runs pods of the rendered chart as processes, beside NATS and Kafka. A pod has an address of loopback, where it
// listens on the ports that the chart gives it, and its volumes: at their paths it finds its own, and nobody else's.
type podsWorld struct {
	*opsWorld
	dir     string // disks below it, and mnt, where pods find theirs
	net     string // the first three bytes of addresses
	hosts   string // what pods have at /etc/hosts
	sets    map[string]podSet
	running map[string]map[string]*opsChild // by pod and container
}

// podSet is a workload of the chart.
type podSet struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ServiceName string `yaml:"serviceName"`
		Template    struct {
			Spec struct{ Containers []container }
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type container struct {
	Name string
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// podNames are all that a test starts, each with an address of its own.
var podNames = []string{"portal-0", "publisher-0", "registry-0", "ps-0", "ps-1", "trainer-0", "entry-0", "serving-0-0", "serving-0-1", "serving-1-0"}

func newPods(t *testing.T) *podsWorld {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED, pods have mounts of their own, and to make them takes root")
	}
	b := make([]byte, 2)
	_, _ = rand.Read(b) // which never fails
	w := &podsWorld{dir: t.TempDir(), net: fmt.Sprintf("127.%d.%d.", 64+b[0]%190, 1+b[1]%250), sets: map[string]podSet{}, running: map[string]map[string]*opsChild{}}
	w.opsWorld = &opsWorld{t: t, log: new(opsLines), Stack: &host.Stack{Config: opsConfig(w.dir)}}
	w.Config.Logs.NATS, w.Config.Kafka = "nats://"+w.net+"250:4222", w.net+"251:9092"
	w.Config.Topics.Ratings, w.Config.Topics.Predictions = "ratings", "predictions"
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithTimeout(t.Context(), opsLife)
	t.Cleanup(cancel)
	nats, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(w.dir, "nats"), Host: w.net + "250", Port: 4222})
	w.must("start NATS", err)
	t.Cleanup(func() { _ = nats.Close() })
	broker, err := kafka.StartBroker(kafka.BrokerConfig{Dir: filepath.Join(w.dir, "kafka"), Addr: w.Config.Kafka, Topics: w.Topics()})
	w.must("start Kafka", err)
	t.Cleanup(func() { _ = broker.Close() })
	w.chart()
	return w
}

// chart reads what is rendered, and writes the names of all pods.
func (w *podsWorld) chart() {
	w.t.Helper()
	f, err := os.Open("../../deploy/k8s/base/monolith.yaml")
	w.must("open the rendered chart", err)
	defer f.Close()
	for d := yaml.NewDecoder(f); ; {
		var s podSet
		if err := d.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			w.t.Fatalf("read the rendered chart: %v", err)
		}
		if s.Kind == "Deployment" || s.Kind == "StatefulSet" {
			w.sets[strings.TrimPrefix(s.Metadata.Name, "monolith-")] = s
		}
	}
	names := "127.0.0.1 localhost\n" + w.net + "250 monolith-nats\n" + w.net + "251 kafka\n"
	for _, pod := range podNames {
		s, _ := w.set(pod)
		names += fmt.Sprintf("%s monolith-%s.%s.monolith.svc\n", w.address(pod), pod, cmp.Or(s.Spec.ServiceName, "none"))
	}
	w.hosts = filepath.Join(w.dir, "hosts")
	w.must("write the pods' names", os.WriteFile(w.hosts, []byte(names), 0o644))
}

// set is what a pod is of, and its index there.
func (w *podsWorld) set(pod string) (podSet, string) {
	at := strings.LastIndex(pod, "-")
	s, ok := w.sets[pod[:at]]
	if !ok {
		w.t.Fatalf("the chart has no %s", pod[:at])
	}
	return s, pod[at+1:]
}

func (w *podsWorld) address(pod string) string {
	return w.net + fmt.Sprint(10+slices.Index(podNames, pod))
}

// disk is where a volume of a pod lies in truth.
func (w *podsWorld) disk(pod, volume string) string {
	return filepath.Join(w.dir, "disks", pod, volume)
}

var (
	anyAddress = regexp.MustCompile(`=:(\d+)$`)
	podPath    = regexp.MustCompile(`=(/[a-z])`)
	podEnv     = regexp.MustCompile(`\$\((\w+)\)`)
)

// start runs the containers of a pod: what it has claimed is as its last one left it, everything else is new.
func (w *podsWorld) start(pod string) {
	w.t.Helper()
	s, index := w.set(pod)
	claimed := map[string]bool{}
	for _, c := range s.Spec.VolumeClaimTemplates {
		claimed[c.Metadata.Name] = true
	}
	w.running[pod] = map[string]*opsChild{}
	made := map[string]bool{}
	for _, c := range s.Spec.Template.Spec.Containers {
		for _, m := range c.VolumeMounts {
			own := w.disk(pod, m.Name)
			if !claimed[m.Name] && !made[m.Name] {
				w.must("empty a volume", os.RemoveAll(own))
			}
			made[m.Name] = true
			w.must("make a volume", os.MkdirAll(own, 0o755))
		}
		line, values := w.within(pod, index, c)
		for _, arg := range c.Args {
			arg = podEnv.ReplaceAllStringFunc(arg, func(v string) string { return values[podEnv.FindStringSubmatch(v)[1]] })
			arg = podPath.ReplaceAllString(arg, "="+w.dir+"/mnt$1")
			line = append(line, anyAddress.ReplaceAllString(arg, "="+w.address(pod)+":$1"))
		}
		w.running[pod][c.Name] = opsSpawnLine(w.t, binaryEnv+"=1", line...)
	}
}

// within is how a command line begins that runs in a container, and the environment that it has there.
func (w *podsWorld) within(pod, index string, c container) (line []string, values map[string]string) {
	line = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done; shift; exec "$@"`, "sh", w.hosts, "/etc/hosts"}
	for _, m := range c.VolumeMounts {
		at := filepath.Join(w.dir, "mnt", m.MountPath)
		w.must("make a volume's place", os.MkdirAll(at, 0o755))
		line = append(line, w.disk(pod, m.Name), at)
	}
	env := map[string]string{"metadata.name": "monolith-" + pod, "status.podIP": w.address(pod), "metadata.labels['apps.kubernetes.io/pod-index']": index}
	line = append(line, "--", "env")
	values = map[string]string{}
	for _, e := range c.Env {
		if values[e.Name] = cmp.Or(env[e.ValueFrom.FieldRef.FieldPath], e.Value); e.Name != "MONOLITH_LOG_REPLICAS" { // there is one server
			line = append(line, e.Name+"="+values[e.Name])
		}
	}
	return append(line, "TMPDIR="+filepath.Join(w.dir, "mnt/tmp"), os.Args[0]), values
}

// exec runs a command in the first container of a pod, as kubectl exec does, and returns what it says.
func (w *podsWorld) exec(pod string, args ...string) (string, error) {
	w.t.Helper()
	s, index := w.set(pod)
	line, _ := w.within(pod, index, s.Spec.Template.Spec.Containers[0])
	cmd := exec.CommandContext(w.soon(), line[0], append(line[1:], args...)...)
	cmd.Env = append(os.Environ(), binaryEnv+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kill ends a pod as its node would that loses power.
func (w *podsWorld) kill(pod string) {
	w.t.Helper()
	for name, c := range w.running[pod] {
		w.must("kill "+name, syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL))
		<-c.exited
	}
	delete(w.running, pod)
}

// ready waits for what the readiness probe of a pod's first container asks on its status port.
func (w *podsWorld) ready(pod string) {
	w.t.Helper()
	w.until(pod+" to be ready", func() (bool, string) {
		for name, c := range w.running[pod] {
			select {
			case err := <-c.exited:
				w.t.Fatalf("%s of %s ended: %v\n%s", name, pod, err, c.log.tail(20))
			default:
			}
		}
		code, body, err := opsGet(w.ctx, "http://"+w.address(pod)+":9100/readyz")
		return code == http.StatusOK, fmt.Sprint(body, err)
	})
}

// holds is what lies on a pod's volume, as paths of folders of the depth that pattern has.
func (w *podsWorld) holds(pod, volume, pattern string) (all []string) {
	w.t.Helper()
	found, err := filepath.Glob(filepath.Join(w.disk(pod, volume), pattern))
	w.must("look at a volume", err)
	for _, f := range found {
		rel, err := filepath.Rel(w.disk(pod, volume), f)
		w.must("name a folder", err)
		all = append(all, rel)
	}
	return all
}

// open connects the user of the job.
func (w *podsWorld) open() {
	w.t.Helper()
	var err error
	w.job, err = demo.OpenJob(w.soon(), connect.Config{NATS: w.Config.Logs.NATS, BZID: "demo", Level: "warn"})
	w.must("open the job", err)
	w.t.Cleanup(func() { _ = w.job.Close() })
}

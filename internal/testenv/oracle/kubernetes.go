package oracle

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/certs"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Kubernetes is a control plane on loopback: etcd, the API server with all that admits by default, and the
// controllers. It has no nodes and no scheduler, so pods stay as a test tells their status.
type Kubernetes struct {
	Kubeconfig string // of one who may do everything

	kubectl, home, token string
	url, ca              string
	client               *http.Client
}

const kubeFix = "run `make kube`"

// StartKubernetes starts one that ends with the test. It is built for some ten minutes of a processor and by a
// target of its own, so t is skipped without it, even where CI=true.
func StartKubernetes(t testing.TB) *Kubernetes {
	t.Helper()
	bin := filepath.Join(Home(t), "kube")
	if _, err := os.Stat(filepath.Join(bin, ".complete")); err != nil {
		t.Skip("SKIPPED, Kubernetes' control plane is missing: " + kubeFix)
	}
	dir, ca := t.TempDir(), certs.NewAuthority(t)
	serving, accounts := ca.Issue("apiserver"), ca.Issue("accounts")
	k := &Kubernetes{Kubeconfig: filepath.Join(dir, "kubeconfig"), kubectl: filepath.Join(bin, "kubectl"), home: dir, token: "administrator"}

	etcd, peers := freePort(t), freePort(t)
	start(t, "etcd", etcd, exec.Command(filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+local("http", etcd), "--advertise-client-urls="+local("http", etcd),
		"--listen-peer-urls="+local("http", peers), "--initial-advertise-peer-urls="+local("http", peers), "--initial-cluster=default="+local("http", peers)))

	tokens := filepath.Join(dir, "tokens.csv")
	write(t, tokens, k.token+",administrator,administrator,system:masters\n")
	api := freePort(t)
	k.url, k.ca = local("https", api), serving.CA
	start(t, "the API server", api, exec.Command(filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+local("http", etcd),
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(api), "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer="+k.url, "--service-account-key-file="+accounts.Key, "--service-account-signing-key-file="+accounts.Key))
	k.writeConfig(t, k.Kubeconfig, k.token)
	k.client = trusting(t, k.ca)
	wait.Until(t, "the API server to be ready", func() error {
		status, answer, err := k.call(http.MethodGet, "/readyz", "", nil)
		if err == nil && status != http.StatusOK {
			err = errors.New(string(answer))
		}
		return err
	})

	controllers := freePort(t)
	start(t, "the controllers", controllers, exec.Command(filepath.Join(bin, "kube-controller-manager"), "--kubeconfig="+k.Kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(controllers), "--cert-dir="+dir,
		"--service-account-private-key-file="+accounts.Key, "--root-ca-file="+serving.CA))
	return k
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
`

func (k *Kubernetes) writeConfig(t testing.TB, path, token string) {
	t.Helper()
	write(t, path, fmt.Sprintf(kubeconfig, k.url, k.ca, token))
}

// As is the kubeconfig of a service account.
func (k *Kubernetes) As(t testing.TB, namespace, account string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	k.writeConfig(t, path, strings.TrimSpace(k.MustKubectl(t, "", "-n", namespace, "create", "token", account)))
	return path
}

func local(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func trusting(t testing.TB, ca string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Kubectl runs the command with stdin, and returns what it printed, warnings and errors included.
func (k *Kubernetes) Kubectl(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), k.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.Kubeconfig, "HOME="+k.home)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// MustKubectl is Kubectl where a failure is the test's.
func (k *Kubernetes) MustKubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := k.Kubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Unchanged waits until kubectl diff finds that what the arguments name is there as it is. It reads every object
// twice, and shows as a difference what controllers write in between.
func (k *Kubernetes) Unchanged(t testing.TB, stdin string, args ...string) {
	t.Helper()
	wait.Seen(t, "nothing to change", func() (string, bool) {
		out, err := k.Kubectl(t, stdin, append([]string{"diff", "--server-side"}, args...)...)
		return out, err == nil
	})
}

// Get reads what lies at a path of the API.
func (k *Kubernetes) Get(t testing.TB, path string) (status int, answer []byte) {
	t.Helper()
	return k.must(t, http.MethodGet, path, "", nil)
}

// Post sends an object to a path of the API.
func (k *Kubernetes) Post(t testing.TB, path, object string) (status int, answer []byte) {
	t.Helper()
	return k.must(t, http.MethodPost, path, "application/json", []byte(object))
}

// Patch merges a patch into what lies at a path of the API.
func (k *Kubernetes) Patch(t testing.TB, path, patch string) (status int, answer []byte) {
	t.Helper()
	return k.must(t, http.MethodPatch, path, "application/merge-patch+json", []byte(patch))
}

func (k *Kubernetes) must(t testing.TB, method, path, contentType string, body []byte) (int, []byte) {
	t.Helper()
	status, answer, err := k.call(method, path, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

func (k *Kubernetes) call(method, path, contentType string, body []byte) (int, []byte, error) {
	r, err := http.NewRequest(method, k.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	r.Header.Set("Content-Type", contentType)
	got, err := k.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer got.Body.Close()
	answer, err := io.ReadAll(got.Body)
	return got.StatusCode, answer, err
}

// CRDs is the folder of the definitions of other projects' resources that the chart makes.
func (k *Kubernetes) CRDs() string { return filepath.Join(filepath.Dir(k.kubectl), "crds") }

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"crypto/x509"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage makes the image for this architecture twice, from two builds, pushes it to a registry
// in memory, and looks at what came there.
func TestImage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the binary is looked at as it runs here, on Linux")
	}
	srv := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	defer srv.Close()
	dir, to := t.TempDir(), strings.TrimPrefix(srv.URL, "http://")+"/monolith:test"
	var digests [2]string
	for i := range digests {
		var out strings.Builder
		at := filepath.Join(dir, fmt.Sprint("image-", i))
		if err := run(t.Context(), []string{"-arch", runtime.GOARCH, "-o", at, "-push", to}, &out); err != nil {
			t.Fatal(err)
		}
		digests[i] = strings.TrimSpace(out.String())
	}
	if digests[0] != digests[1] || !strings.HasPrefix(digests[0], "sha256:") {
		t.Errorf("two builds have the digests %v", digests)
	}
	one, err := os.ReadFile(filepath.Join(dir, "image-0.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if two, err := os.ReadFile(filepath.Join(dir, "image-1.tar")); err != nil || !bytes.Equal(one, two) {
		t.Errorf("the two archives differ, %v", err)
	}
	path, err := layout.FromPath(filepath.Join(dir, "image-0"))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(kept); err != nil {
		t.Error(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := index.Digest(); err != nil || digest.String() != digests[0] {
		t.Errorf("the registry has %s, %v", digest, err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, image)
	billed(t, ref.Context().Digest(manifest.Manifests[0].Digest.String()), image)
}

// billed holds that the registry lists the image's bill of materials, and that it names what the go
// command finds in the image's binary, no more and no less.
func billed(t *testing.T, image name.Digest, content v1.Image) {
	t.Helper()
	referrers, err := remote.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := referrers.IndexManifest()
	if err != nil || len(listed.Manifests) != 1 || listed.Manifests[0].ArtifactType != "application/spdx+json" {
		t.Fatalf("the registry lists %+v, %v", listed, err)
	}
	artifact, err := remote.Image(image.Context().Digest(listed.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var bill spdxDocument
	if err := json.NewDecoder(r).Decode(&bill); err != nil || bill.SPDXVersion != "SPDX-2.3" {
		t.Fatalf("%+v, %v", bill, err)
	}
	binary := filepath.Join(t.TempDir(), "monolith")
	raw := fileOf(t, content, "monolith")
	if err := os.WriteFile(binary, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(raw)); len(bill.Files) != 1 || bill.Files[0].Checksums[0].Value != sum {
		t.Errorf("files %+v, the binary's hash is %s", bill.Files, sum)
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{rootsOf: ""}
	var last string
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); {
		case f[0] == "mod":
			want[f[1]] = ""
		case f[0] == "dep":
			last = f[1]
			want[last] = f[2]
		case f[0] == "=>" && !strings.HasPrefix(f[1], "."):
			delete(want, last)
			want[f[1]] = f[2]
		case strings.HasPrefix(f[0], binary):
			want["stdlib"] = strings.TrimPrefix(f[1], "go")
		}
	}
	ids := map[string]bool{}
	for _, p := range bill.Packages {
		version, ok := want[p.Name]
		if !ok || version != "" && version != p.VersionInfo || ids[p.SPDXID] || !strings.HasPrefix(p.ExternalRefs[0].Locator, "pkg:golang/"+p.Name) {
			t.Errorf("%+v; the go command says %q, %v", p, version, ok)
		}
		ids[p.SPDXID] = true
		delete(want, p.Name)
	}
	if len(want) != 0 || len(bill.Packages) < 40 || len(bill.Relationships) != len(bill.Packages)+1 {
		t.Errorf("of %d packages with %d relationships it lacks %v", len(bill.Packages), len(bill.Relationships), want)
	}
}

// fileOf is a file of the image.
func fileOf(t *testing.T, image v1.Image, path string) []byte {
	t.Helper()
	flat := mutate.Extract(image)
	defer flat.Close()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.Name == path {
			raw, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}
	}
}

// holds looks at an image: who runs what, and its files.
func holds(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/monolith"}) || config.OS != "linux" || config.Architecture != runtime.GOARCH || !config.Created.IsZero() {
		t.Errorf("the image's configuration is %+v", config)
	}
	found, content := map[string]*tar.Header{}, map[string][]byte{}
	flat := mutate.Extract(image)
	defer flat.Close()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(h.Name, "/")], content[h.Name] = h, raw
	}
	for path, mode := range map[string]int64{"monolith": 0o755, "tmp": 0o1777, "data": 0o1777, "etc": 0o755, "etc/passwd": 0o644, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644} {
		if h := found[path]; h == nil || h.Mode != mode || h.Uid != 0 {
			t.Errorf("/%s: %+v", path, h)
		}
	}
	if len(found) != 8 {
		t.Errorf("the image has %d files: %v", len(found), found)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(content["etc/ssl/certs/ca-certificates.crt"]) || bytes.Count(content["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN")) < 100 {
		t.Error("the image has no authorities")
	}
	program, err := elf.NewFile(bytes.NewReader(content["monolith"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary is not static")
		}
	}
	if root, err := os.Getwd(); err == nil && bytes.Contains(content["monolith"], []byte(filepath.Dir(root))) {
		t.Error("the binary names folders of this machine")
	}
	sameFiles(t, found, content)
}

// sameFiles holds that what the Dockerfile copies is what the image has.
func sameFiles(t *testing.T, found map[string]*tar.Header, content map[string][]byte) {
	t.Helper()
	dir, n := t.TempDir(), 0
	if err := run(t.Context(), []string{"-arch", runtime.GOARCH, "-root", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	for path, h := range found {
		st, err := os.Stat(filepath.Join(dir, path))
		if err != nil || st.Mode() != h.FileInfo().Mode() {
			t.Errorf("/%s: %v, %v; want the mode %v", path, st, err, h.FileInfo().Mode())
			continue
		}
		if n++; st.IsDir() {
			continue
		}
		if raw, err := os.ReadFile(filepath.Join(dir, path)); err != nil || !bytes.Equal(raw, content[path]) {
			t.Errorf("/%s differs from the image's, %v", path, err)
		}
	}
	if n != len(found) {
		t.Errorf("%d of %d files are there", n, len(found))
	}
}

// TestFlags holds that an image which goes nowhere is refused before minutes of building.
// TestPrograms holds that each program has its module and its package, and an image that runs it. This test is the
// binary, as another would take minutes to build.
func TestPrograms(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for program, from := range programs {
		module := filepath.Join("..", "..", filepath.FromSlash(from.module))
		for _, path := range []string{filepath.Join(module, "go.mod"), filepath.Join(module, from.pkg, "main.go")} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", program, err)
			}
		}
		index, err := assemble([]platform{{program, runtime.GOARCH, self}}, "v0.0.0")
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		image, err := index.Image(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/" + program}) || len(fileOf(t, image, program)) == 0 {
			t.Errorf("%s: the image's configuration is %+v, %v", program, config, err)
		}
	}
	if err := run(t.Context(), []string{"-program", "other", "-o", t.TempDir()}, io.Discard); err == nil || !strings.Contains(err.Error(), "one of mlservice, monolith") {
		t.Errorf("an unknown program: %v", err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{}, {"-o", "a", "-root", "b"}, {"-root", "b", "-push", "c"}, {"-o", "a", "b"}} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), "say where the image goes") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

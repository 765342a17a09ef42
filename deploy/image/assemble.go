package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is whom the image runs as, by number, so that Kubernetes sees that it is not root.
const user = "65532:65532"

// programs are those of which there are images: the folder of their module, from the repository's, and their package in it.
var programs = map[string]struct{ module, pkg string }{
	"monolith":  {".", "./cmd/monolith"},
	"mlservice": {"deploy/mlservice", "."},
}

// platform is the binary of a program for an architecture.
type platform struct{ program, arch, binary string }

// build makes the static binary, without the paths, times and names of this machine.
func (p platform) build(ctx context.Context) error {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", p.binary, programs[p.program].pkg)
	cmd.Dir = filepath.Join(filepath.Dir(string(bytes.TrimSpace(mod))), "..", programs[p.program].module) // this program is of the module deploy
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+p.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %s: %w\n%s", p.arch, err, out)
	}
	return nil
}

// file is one of the image; from names what is read for its content.
type file struct {
	header tar.Header
	from   string
	text   []byte
}

// files are all but the binary: authorities, the name of the user, and folders for sockets and volumes.
func files() ([]file, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	folder := func(name string, mode int64) file {
		return file{header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}}
	}
	return []file{
		folder("etc/", 0o755), {header: tar.Header{Name: "etc/passwd", Mode: 0o644}, text: []byte("monolith:x:65532:65532::/:/\n")},
		folder("etc/ssl/", 0o755), folder("etc/ssl/certs/", 0o755),
		{header: tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644}, text: roots.Bytes()},
		folder("tmp/", 0o1777), folder("data/", 0o1777), // a volume that is mounted there without an owner has this mode
	}, nil
}

func (p platform) file() file {
	return file{header: tar.Header{Name: p.program, Mode: 0o755}, from: p.binary}
}

// layer packs files, each with the time 0 and owned by root.
func layer(all ...file) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range all {
		if f.from != "" {
			if err := add(w, f.header, f.from); err != nil {
				return nil, err
			}
			continue
		}
		h := f.header
		h.Size, h.ModTime, h.Format = int64(len(f.text)), time.Unix(0, 0), tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

// add writes one file of the disk into a tar.
func add(w *tar.Writer, h tar.Header, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h.Size, h.ModTime, h.Format = st.Size(), time.Unix(0, 0), tar.FormatUSTAR
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// assemble makes the image of all platforms. The binary is a layer of its own: an upgrade brings
// that alone. Each image is followed by its bill of materials.
func assemble(all []platform, roots string) (v1.ImageIndex, error) {
	rest, err := files()
	if err != nil {
		return nil, err
	}
	below, err := layer(rest...)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range all {
		above, err := layer(p.file())
		if err != nil {
			return nil, err
		}
		image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), below, above)
		if err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", p.arch
		config.Config = v1.Config{User: user, Entrypoint: []string{"/" + p.program}, WorkingDir: "/",
			Env: []string{"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}, Labels: map[string]string{"org.opencontainers.image.title": p.program, "org.opencontainers.image.licenses": "Apache-2.0"}}
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		bill, err := sbom(p, roots)
		if err != nil {
			return nil, err
		}
		note, err := attached(image, bill)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}}},
			mutate.IndexAddendum{Add: note, Descriptor: v1.Descriptor{ArtifactType: string(spdxType), Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}}) // which nobody runs
	}
	return index, nil
}

// writeRoot writes what the image holds as files below dir.
func writeRoot(dir string, p platform) error {
	rest, err := files()
	if err != nil {
		return err
	}
	for _, f := range append(rest, p.file()) {
		path := filepath.Join(dir, filepath.FromSlash(f.header.Name))
		mode := f.header.FileInfo().Mode()
		if f.header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
		} else {
			text := f.text
			if f.from != "" {
				if text, err = os.ReadFile(f.from); err != nil {
					return err
				}
			}
			if err := os.WriteFile(path, text, mode.Perm()); err != nil {
				return err
			}
		}
		if err := os.Chmod(path, mode.Perm()|mode&os.ModeSticky); err != nil {
			return err
		}
	}
	return nil
}

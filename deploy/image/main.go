// Command image makes the container image of Monolith, or of its other program, without a daemon: a static binary for
// each architecture, certificate authorities and nothing else, with the same digest wherever it is made.
package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// pushTimeout bounds a push of some hundred megabytes over a slow line.
const pushTimeout = 30 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run makes what the flags ask for and prints the image's digest.
func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	program := fs.String("program", "monolith", "`name` of what the image runs: monolith or mlservice")
	arches := fs.String("arch", "amd64,arm64", "`architectures`, with commas between them")
	dir := fs.String("o", "", "`folder` for the image as an OCI layout, and as FOLDER.tar for docker load, podman load and ctr images import")
	tag := fs.String("tag", "", "`name` of the image in that archive (default: the program's with :0.1.0)")
	push := fs.String("push", "", "`reference` to push the image to, with the credentials of docker login")
	root := fs.String("root", "", "`folder` to write the files of the image to instead, for the first architecture: what the Dockerfile copies")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || (*root == "") == (*dir == "" && *push == "") {
		return errors.New("say where the image goes: -o FOLDER, -push REFERENCE or both; or -root FOLDER for its files")
	}
	if _, ok := programs[*program]; !ok {
		return fmt.Errorf("there is no program %q: it is one of %s", *program, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	work, err := os.MkdirTemp("", "monolith-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var images []platform
	for _, arch := range strings.Split(*arches, ",") {
		p := platform{*program, arch, filepath.Join(work, arch)}
		if err := p.build(ctx); err != nil {
			return err
		}
		images = append(images, p)
	}
	if *root != "" {
		return writeRoot(*root, images[0])
	}
	roots, err := rootsVersion(ctx)
	if err != nil {
		return err
	}
	index, err := assemble(images, roots)
	if err != nil {
		return err
	}
	if *dir != "" {
		if err := write(*dir, cmp.Or(*tag, *program+":0.1.0"), index); err != nil {
			return fmt.Errorf("write the image: %w", err)
		}
	}
	if *push != "" {
		if err := upload(ctx, *push, index); err != nil {
			return fmt.Errorf("push the image: %w", err)
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, digest)
	return err
}

// write puts the image into a layout at dir, which is made anew, and into dir.tar.
func write(dir, tag string, index v1.ImageIndex) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, version, _ := strings.Cut(tag, ":")
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": version, "io.containerd.image.name": tag,
	})); err != nil {
		return err
	}
	return archive(dir, dir+".tar")
}

// archive writes the files below dir into a tar, always in the same order and with the same times.
func archive(dir, to string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var names []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, path)
		}
		return err
	}); err != nil {
		return err
	}
	slices.Sort(names)
	w := tar.NewWriter(f)
	for _, path := range names {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := add(w, tar.Header{Name: filepath.ToSlash(rel), Mode: 0o644}, path); err != nil {
			return err
		}
	}
	return w.Close()
}

func upload(ctx context.Context, to string, index v1.ImageIndex) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	return remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}

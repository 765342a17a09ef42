package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	spdxType = types.MediaType("application/spdx+json")
	rootsOf  = "golang.org/x/crypto/x509roots/fallback" // the module whose authorities the image has
	unknown  = "NOASSERTION"
)

// spdxDocument is a bill of materials in SPDX 2.3, as far as it says anything here.
type spdxDocument struct {
	SPDXVersion       string `json:"spdxVersion"`
	DataLicense       string `json:"dataLicense"`
	SPDXID            string `json:"SPDXID"`
	Name              string `json:"name"`
	DocumentNamespace string `json:"documentNamespace"`
	CreationInfo      struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	} `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Files         []spdxFile         `json:"files"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxPackage struct {
	SPDXID           string       `json:"SPDXID"`
	Name             string       `json:"name"`
	VersionInfo      string       `json:"versionInfo,omitempty"`
	DownloadLocation string       `json:"downloadLocation"`
	FilesAnalyzed    bool         `json:"filesAnalyzed"`
	LicenseConcluded string       `json:"licenseConcluded"`
	LicenseDeclared  string       `json:"licenseDeclared"`
	CopyrightText    string       `json:"copyrightText"`
	SourceInfo       string       `json:"sourceInfo,omitempty"`
	ExternalRefs     []spdxExtern `json:"externalRefs,omitempty"`
}

type spdxExtern struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxFile struct {
	SPDXID           string         `json:"SPDXID"`
	FileName         string         `json:"fileName"`
	Checksums        []spdxChecksum `json:"checksums"`
	LicenseConcluded string         `json:"licenseConcluded"`
	CopyrightText    string         `json:"copyrightText"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// packageOf is a Go module. Its number makes the id, since paths have letters that ids may not.
func packageOf(n int, path, version, sum string) spdxPackage {
	p := spdxPackage{SPDXID: fmt.Sprint("SPDXRef-Package-", n), Name: path, VersionInfo: version, DownloadLocation: unknown,
		LicenseConcluded: unknown, LicenseDeclared: unknown, CopyrightText: unknown}
	purl := "pkg:golang/" + path
	if version != "" {
		purl += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	if sum != "" {
		p.SourceInfo = "checksum of the Go module: " + sum
	}
	p.ExternalRefs = []spdxExtern{{"PACKAGE-MANAGER", "purl", purl}}
	return p
}

// sbom lists what a binary was built of, as the compiler has written it into it, and the
// authorities beside it. It says no time, so that the same image has the same.
func sbom(p platform, roots string) ([]byte, error) {
	info, err := buildinfo.ReadFile(p.binary)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built of: %w", p.binary, err)
	}
	raw, err := os.ReadFile(p.binary)
	if err != nil {
		return nil, err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(raw))
	d := spdxDocument{SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: p.program + "-linux-" + p.arch,
		DocumentNamespace: "https://github.com/monolith-go/monolith/sbom/" + p.program + "/" + p.arch + "/" + hash}
	d.CreationInfo.Created, d.CreationInfo.Creators = "1970-01-01T00:00:00Z", []string{"Tool: monolith-image"}
	own := packageOf(0, info.Main.Path, "", "")
	own.LicenseDeclared = "Apache-2.0"
	d.Packages = []spdxPackage{own, packageOf(1, "stdlib", strings.TrimPrefix(info.GoVersion, "go"), ""), packageOf(2, rootsOf, roots, "")}
	d.Files = []spdxFile{{"SPDXRef-File-" + p.program, "./" + p.program, []spdxChecksum{{"SHA256", hash}}, unknown, unknown}}
	d.Relationships = []spdxRelationship{{d.SPDXID, "DESCRIBES", own.SPDXID}, {own.SPDXID, "CONTAINS", d.Files[0].SPDXID}}
	for _, m := range info.Deps {
		m = built(m)
		d.Packages = append(d.Packages, packageOf(len(d.Packages), m.Path, m.Version, m.Sum))
	}
	for _, p := range d.Packages[1:] {
		d.Relationships = append(d.Relationships, spdxRelationship{own.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	return json.MarshalIndent(d, "", " ")
}

// built is the module that stands in for another one, where one does. One of a folder keeps its name.
func built(m *debug.Module) *debug.Module {
	if m.Replace != nil && m.Replace.Version != "" {
		return m.Replace
	}
	return m
}

// rootsVersion is that of the module with the authorities.
func rootsVersion(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", rootsOf)
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the version of %s: %w", rootsOf, err)
	}
	return string(bytes.TrimSpace(version)), nil
}

// attached is the bill of an image as a manifest whose subject is that image: registries list it
// among the image's referrers.
func attached(image v1.Image, bill []byte) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxType)
	if artifact, err = mutate.AppendLayers(artifact, static.NewLayer(bill, spdxType)); err != nil {
		return nil, err
	}
	return mutate.Subject(artifact, *subject).(v1.Image), nil
}

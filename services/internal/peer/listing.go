// Package peer hands folders of models from host to host: a handler that serves what lies here,
// and a fetch that has a folder from several hosts at once and goes on where it was stopped.
package peer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"
)

// Bounds of what is fetched.
const (
	maxListing = 16 << 20 // bytes
	maxFiles   = 65_536
	maxBytes   = 4 << 40 // of all files: what is kept of each piece in memory grows with it
	maxName    = 4096
	maxDepth   = 33 // of a file: 32 folders, and itself
)

// File is one file of a folder.
type File struct {
	Name   string `json:"name"` // below the folder, with slashes
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
}

// Listing is what a folder holds: its files by name, none of them empty folders.
type Listing struct {
	// Export identifies what was exported, the SHA-256 of the manifest; "" where there is none.
	Export string `json:"export,omitempty"`
	Files  []File `json:"files"`
}

// decodeListing reads a listing of another host, and refuses one by which anything outside a
// folder could be written, or more than a disk is meant to hold.
func decodeListing(r io.Reader) (l Listing, err error) {
	text, err := io.ReadAll(io.LimitReader(r, maxListing+1))
	if err != nil {
		return l, err
	}
	if len(text) > maxListing {
		return l, fmt.Errorf("the listing is longer than %d bytes", maxListing)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&l); err != nil {
		return l, fmt.Errorf("the listing does not decode: %w", err)
	}
	if d.More() {
		return l, errors.New("something follows the listing")
	}
	return l, l.check()
}

func (l Listing) check() error {
	if len(l.Files) == 0 || len(l.Files) > maxFiles {
		return fmt.Errorf("the listing names %d files: 1 to %d are taken", len(l.Files), maxFiles)
	}
	if raw, err := hex.DecodeString(l.Export); err != nil || len(raw) != 0 && len(raw) != sha256.Size {
		return fmt.Errorf("the listing's export %.80q is no SHA-256 in hexadecimal", l.Export)
	}
	folders, last, sum := map[string]bool{}, "", int64(0)
	for _, f := range l.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		if f.Name <= last {
			return fmt.Errorf("the listing names %.80q behind %.80q: names must rise", f.Name, last)
		}
		last = f.Name
		if f.Size < 0 {
			return fmt.Errorf("%.80q has %d bytes, which cannot be", f.Name, f.Size)
		}
		if f.Size > maxBytes-sum {
			return fmt.Errorf("with %.80q of %d bytes the listing's files have more than the %d bytes that are taken: export more shards", f.Name, f.Size, int64(maxBytes))
		}
		if f.Size == 0 && f.CRC32C != 0 {
			return fmt.Errorf("%.80q is empty and has checksum %08x", f.Name, f.CRC32C)
		}
		sum += f.Size
		for dir := path.Dir(f.Name); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, f := range l.Files {
		if folders[f.Name] {
			return fmt.Errorf("%.80q is a file and a folder", f.Name)
		}
	}
	return nil
}

// checkName refuses what is not the plain name of a file below a folder. What begins as this
// package's own files do is refused, too.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\\"):
		return fmt.Errorf("%.80q names no file", name)
	case path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return fmt.Errorf("%.80q is no file below the folder", name)
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("%.80q lies more than %d folders deep", name, maxDepth-1)
	case strings.HasPrefix(name, ownFiles):
		return fmt.Errorf("%.80q begins with %s, as the marks of an unfinished fetch do", name, ownFiles)
	}
	return nil
}

// size is how many bytes the files have.
func (l Listing) size() (sum int64) {
	for _, f := range l.Files {
		sum += f.Size
	}
	return sum
}

// digest tells listings apart.
func (l Listing) digest() string {
	text, _ := json.Marshal(l) // texts and numbers: it cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
